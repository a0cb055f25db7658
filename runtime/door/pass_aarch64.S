/* SPDX-License-Identifier: Apache-2.0
 *
 * pass_aarch64.S: the functions of the table that gpushare passes (GS_PASS), as jumps to the driver's own. See
 * pass_x86_64.S for what and why.
 */
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
    .globl  gs_door_slots
    .hidden gs_door_slots
gs_door_slots:
    .popsection

    .text
    .p2align 4
    .type   resolve, %function
resolve:                            /* x17: the row */
    .cfi_startproc
    stp     x29, x30, [sp, #-224]!
    .cfi_adjust_cfa_offset 224
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    stp     x2, x3, [sp, #32]
    stp     x4, x5, [sp, #48]
    stp     x6, x7, [sp, #64]
    str     x8, [sp, #80]
    stp     q0, q1, [sp, #96]
    stp     q2, q3, [sp, #128]
    stp     q4, q5, [sp, #160]
    stp     q6, q7, [sp, #192]
    mov     x0, x17
    bl      gs_door_resolve
    mov     x16, x0
    ldp     x0, x1, [sp, #16]
    ldp     x2, x3, [sp, #32]
    ldp     x4, x5, [sp, #48]
    ldp     x6, x7, [sp, #64]
    ldr     x8, [sp, #80]
    ldp     q0, q1, [sp, #96]
    ldp     q2, q3, [sp, #128]
    ldp     q4, q5, [sp, #160]
    ldp     q6, q7, [sp, #192]
    ldp     x29, x30, [sp], #224
    .cfi_adjust_cfa_offset -224
    .cfi_restore x29
    .cfi_restore x30
    br      x16
    .cfi_endproc
    .size   resolve, . - resolve
    .hidden gs_door_resolve

#define GS_PASS(symbol, ...) PASS symbol
#include "wrap/driver_api.def"

    .section .note.GNU-stack, "", %progbits
