/* SPDX-License-Identifier: Apache-2.0
 *
 * pass_aarch64.S: the functions of the table that gpushare passes (GS_PASS), as jumps to the driver's own. See
 * pass_x86_64.S for what and why.
 */
#include "runtime/base/resolve_aarch64.S"

    .set    row, 0
    .macro PASS name
    .globl  \name
    .type   \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint    #34                     /* bti c */
    adrp    x16, 9f
    ldr     x16, [x16, :lo12:9f]
    br      x16
    .cfi_endproc
    .size   \name, . - \name
8:  hint    #36                     /* bti j */
    mov     x17, #row
    b       resolve
    .pushsection .data.rel.local, "aw"
9:  .xword  8b
    .popsection
    .set    row, row + 1
    .endm

    .pushsection .data.rel.local, "aw"
    .p2align 3
slots:
    .popsection

    .text
    GS_RESOLVE gs_door_resolve, slots

#define GS_PASS(symbol, ...) PASS symbol
#include "wrap/driver_api.def"

    .section .note.GNU-stack, "", %progbits
