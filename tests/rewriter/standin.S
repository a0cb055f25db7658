/* SPDX-License-Identifier: Apache-2.0
 *
 * standin.S: what dlsym and dlvsym are in the stand-in for the runtime library: they count and jump to libc's own, so
 * that libc sees the caller's return address.
 */
#if defined(__x86_64__)
#define ENTRY(name, plain, counter, real)                                                                               \
    .globl name;                                                                                                        \
    .globl plain;                                                                                                       \
    .type name, @function;                                                                                              \
    .type plain, @function;                                                                                             \
    name:                                                                                                               \
    plain:                                                                                                              \
    lock incq counter(%rip);                                                                                            \
    jmp *real(%rip);                                                                                                    \
    .size name, . - name;                                                                                               \
    .size plain, . - plain
#elif defined(__aarch64__)
#define ENTRY(name, plain, counter, real)                                                                               \
    .globl name;                                                                                                        \
    .globl plain;                                                                                                       \
    .type name, % function;                                                                                             \
    .type plain, % function;                                                                                            \
    name:                                                                                                               \
    plain:                                                                                                              \
    adrp x16, counter;                                                                                                  \
    add x16, x16, : lo12 : counter;                                                                                     \
    ldr x17, [x16];                                                                                                     \
    add x17, x17, #1;                                                                                                   \
    str x17, [x16];                                                                                                     \
    adrp x16, real;                                                                                                     \
    ldr x16, [x16, : lo12 : real];                                                                                      \
    br x16;                                                                                                             \
    .size name, . - name;                                                                                               \
    .size plain, . - plain
#endif
    .text
    ENTRY(__wrap_dlsym, dlsym, standin_calls, standin_real_dlsym)
    ENTRY(__wrap_dlvsym, dlvsym, standin_calls, standin_real_dlvsym)
    .section .note.GNU-stack, "", %progbits
