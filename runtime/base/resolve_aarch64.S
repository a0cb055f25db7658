/* SPDX-License-Identifier: Apache-2.0
 *
 * resolve_aarch64.S: see resolve_x86_64.S. The function's number comes in x17.
 */
    .macro GS_RESOLVE look_up, slots
    .hidden \look_up
    .p2align 4
    .type   resolve, %function
resolve:
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
    adrp    x1, \slots
    add     x1, x1, :lo12:\slots
    bl      \look_up
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
    .endm
