/* SPDX-License-Identifier: Apache-2.0
 *
 * doors_aarch64.S: dlsym and dlvsym as other objects see them. See doors_x86_64.S for what and why.
 */
    .macro DOOR name, wrapped, next, decide, choose
    .globl \name, \wrapped
    .type \name, %function
    .type \wrapped, %function
    .p2align 4
\name:
\wrapped:
    .cfi_startproc
    hint    #34                     /* bti c */
    cbz     x1, 2f
    ldrb    w9, [x1]
    cmp     w9, #'c'
    b.ne    2f
    ldrb    w9, [x1, #1]
    cmp     w9, #'u'
    b.ne    2f
    stp     x29, x30, [sp, #-48]!
    .cfi_adjust_cfa_offset 48
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    str     x2, [sp, #32]
    mov     x3, x30                 /* the caller */
    bl      \decide
    mov     x9, x1
    mov     x10, x0
    ldp     x0, x1, [sp, #16]
    ldr     x2, [sp, #32]
    ldp     x29, x30, [sp], #48
    .cfi_adjust_cfa_offset -48
    .cfi_restore x29
    .cfi_restore x30
    cbz     x9, 2f
    mov     x0, x10
    ret
2:  adrp    x9, \next
    ldr     x9, [x9, :lo12:\next]
    cbz     x9, 3f
    br      x9
3:  stp     x29, x30, [sp, #-48]!
    .cfi_adjust_cfa_offset 48
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    str     x2, [sp, #32]
    bl      \choose
    mov     x9, x0
    ldp     x0, x1, [sp, #16]
    ldr     x2, [sp, #32]
    ldp     x29, x30, [sp], #48
    .cfi_adjust_cfa_offset -48
    .cfi_restore x29
    .cfi_restore x30
    br      x9
    .cfi_endproc
    .size \name, . - \name
    .size \wrapped, . - \wrapped
    .endm

    .hidden gs_door_dlsym, gs_door_dlvsym, gs_next_dlsym, gs_next_dlvsym, gs_others_dlsym, gs_others_dlvsym
    .text
    DOOR dlsym,  __wrap_dlsym,  gs_next_dlsym,  gs_door_dlsym,  gs_others_dlsym
    DOOR dlvsym, __wrap_dlvsym, gs_next_dlvsym, gs_door_dlvsym, gs_others_dlvsym

    .section .note.GNU-stack, "", %progbits
