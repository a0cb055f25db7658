/* SPDX-License-Identifier: Apache-2.0
 *
 * moves.h: a block of moves.c, and what moves_own.c does with those that the program maps itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

struct moves_block {
    CUdeviceptr device; /* 0: free */
    size_t bytes;
    uint8_t *shadow;
    CUgraphExec wipe;                    /* NULL: not made */
    bool own;                            /* mapped by the program itself */
    CUmemGenericAllocationHandle handle; /* own: while it is not mapped */
};

/* Memory, an address and access for a block; it may be exported. */
CUresult moves_map_exportable(struct moves_block *block, bool for_network);

/* Its memory has no address any more; and it has it again. */
CUresult moves_unmap(struct moves_block *block);
CUresult moves_map(struct moves_block *block);

/* Gives device 0 these rights (CUmemAccess_flags) of its memory. */
CUresult moves_set_rights(const struct moves_block *block, unsigned flags);
/* CUDA_SUCCESS if it has exactly these where the memory is now. */
CUresult moves_has_rights(const struct moves_block *block, unsigned flags);

/* Exports its memory by a thread that has no current context. */
CUresult moves_reaches_network(const struct moves_block *block);
CUresult moves_export_bare(const struct moves_block *block);

/* Exports memory that never gets an address. */
CUresult moves_share(size_t mib);
