/* SPDX-License-Identifier: Apache-2.0
 *
 * resolve_x86_64.S: what a jump to a driver's function does when it is taken for the first time, for files that include this
 * one. As the loader's lazy binding does, it has the function looked up with all arguments kept, and goes on to it.
 *
 * GS_RESOLVE look_up, slots defines the local label `resolve`, to which the jumps go with the function's number in %r11d.
 * void *look_up(size_t number, void **slots) gives the address.
 */
    .macro GS_RESOLVE look_up, slots
    .hidden \look_up
    .p2align 4
    .type   resolve, @function
resolve:
    .cfi_startproc
    pushq   %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq    %rsp, %rbp
    .cfi_def_cfa_register %rbp
    pushq   %rdi
    pushq   %rsi
    pushq   %rdx
    pushq   %rcx
    pushq   %r8
    pushq   %r9
    pushq   %rax
    subq    $136, %rsp              /* 128 for eight registers */
    andq    $-16, %rsp
    movups  %xmm0, (%rsp)
    movups  %xmm1, 16(%rsp)
    movups  %xmm2, 32(%rsp)
    movups  %xmm3, 48(%rsp)
    movups  %xmm4, 64(%rsp)
    movups  %xmm5, 80(%rsp)
    movups  %xmm6, 96(%rsp)
    movups  %xmm7, 112(%rsp)
    movl    %r11d, %edi
    leaq    \slots(%rip), %rsi
    call    \look_up
    movq    %rax, %r11
    movups  (%rsp), %xmm0
    movups  16(%rsp), %xmm1
    movups  32(%rsp), %xmm2
    movups  48(%rsp), %xmm3
    movups  64(%rsp), %xmm4
    movups  80(%rsp), %xmm5
    movups  96(%rsp), %xmm6
    movups  112(%rsp), %xmm7
    leaq    -56(%rbp), %rsp
    popq    %rax
    popq    %r9
    popq    %r8
    popq    %rcx
    popq    %rdx
    popq    %rsi
    popq    %rdi
    popq    %rbp
    .cfi_def_cfa %rsp, 8
    jmp     *%r11
    .cfi_endproc
    .size   resolve, . - resolve
    .endm
