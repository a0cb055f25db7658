/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma.h: devices that reach the card's memory by themselves.
 */
#pragma once

#include "runtime/base/base.h"

/* True once this process has had a device open by which a kernel module (nvidia-peermem, gdrdrv,
 * nvidia-fs) registers memory of the card for a network card, the processor or a disk. libcuda is
 * not told of that, and the device not of a move: nothing may move from then on. Looks at all
 * descriptors, so not for paths that are taken often. Client thread. */
bool gs_rdma_is_open(void);
