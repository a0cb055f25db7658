/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_image.S: the fatbin of kernels.cu as data (GS_KERNELS_FATBIN: its path; not defined: there is none).
 */
    .section .rodata
    .balign 16
    .globl gs_kernels_image
    .hidden gs_kernels_image
    .type gs_kernels_image, %object
gs_kernels_image:
#ifdef GS_KERNELS_FATBIN
    .incbin GS_KERNELS_FATBIN
#endif
    .quad 0
    .size gs_kernels_image, . - gs_kernels_image
    .section .note.GNU-stack, "", %progbits
