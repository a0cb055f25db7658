/* SPDX-License-Identifier: Apache-2.0
 *
 * hog_broken_standin.c: hog's stand-ins with a fault: when step 1 has been written, one bit of
 * one page is flipped (BROKEN_PAGE in the environment), or the whole page is what another page
 * should be (BROKEN_SWAP). hog must find it.
 */
#define simcuda_kernels right_kernels
#include "tests/programs/hog_standin.c" /* NOLINT(bugprone-suspicious-include): its static functions are wanted */
#undef simcuda_kernels

#include <stdlib.h>

static void broken_step(const struct simcuda_launch *launch)
{
    uint64_t *memory = PARAM(launch, 0, uint64_t *);
    uint64_t first_page = PARAM(launch, 1, uint64_t);
    uint64_t pages = PARAM(launch, 2, uint64_t);
    const char *bit = getenv("BROKEN_PAGE");
    const char *swap = getenv("BROKEN_SWAP");
    uint64_t page = strtoull(bit ? bit : swap ? swap : "0", NULL, 10);

    step_memory(launch);
    if (PARAM(launch, 4, uint64_t) != 1 || page < first_page || page >= first_page + pages)
        return;
    uint64_t *words = memory + (page - first_page) * HOG_WORDS;

    if (bit)
        words[HOG_WORDS / 2] ^= 1;
    else if (swap)
        memcpy(words, words - HOG_WORDS, HOG_PAGE);
}

const struct simcuda_kernel simcuda_kernels[] = {
    {"hog_fill", fill_memory, 4, fill_params},
    {"hog_step", broken_step, 8, step_params},
    {0},
};
