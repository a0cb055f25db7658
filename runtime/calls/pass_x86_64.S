/* SPDX-License-Identifier: Apache-2.0
 *
 * pass_x86_64.S: the functions of the table that gpushare passes (GS_PASS), as jumps to the driver's own.
 *
 * A slot first leads to a stub that has gs_door_resolve() look the function up. Afterwards it leads to the driver.
 */
#include "runtime/base/resolve_x86_64.S"

    .set    row, 0
    .macro PASS name
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    jmp     *9f(%rip)
    .cfi_endproc
    .size   \name, . - \name
8:  endbr64
    movl    $row, %r11d
    jmp     resolve
    .pushsection .data.rel.local, "aw"
9:  .quad   8b
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

    .section .note.GNU-stack, "", @progbits
