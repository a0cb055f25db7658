/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_left.h: how much host memory can be taken: the machine's available memory, and the
 * remainder of a process's memory cgroups (cgroups(7); versions 1 and 2, and both side by side).
 *
 * root: a folder that stands for / (tests have their own /proc and /sys there); "" is the real
 * root. Any thread. UINT64_MAX as a result: not known, or not limited.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GS_GROUP_PATH 4096

/* The cgroup in which a process's memory is counted, as this process's cgroup namespace shows
 * it. */
struct gs_memory_group {
    bool known;               /* false: it cannot be seen from here */
    bool first;               /* version 1 */
    char path[GS_GROUP_PATH]; /* "": the root of the hierarchy; else "/a/b" */
};

/* Bytes that the machine has without swapping (MemAvailable). */
uint64_t gs_memory_machine(const char *root);

/* The group of a process; 0: this process. */
void gs_memory_group_of(struct gs_memory_group *group, const char *root, pid_t pid);

/* Widens the group to the narrowest group that also contains the other group. True if that changed
 * it. */
bool gs_memory_group_join(struct gs_memory_group *group, const struct gs_memory_group *other);

/* The least that the group and those above it leave: limit minus usage. Usage does not include
 * inactive file pages, which the kernel reclaims before anything else. */
uint64_t gs_memory_group_left(const struct gs_memory_group *group, const char *root);

/* The least that the device memory controller of control groups (dmem.max, Linux 6.14) allows this
 * process's group and those above it on the device with that PCI address, such as
 * "0000:c1:00.0". */
uint64_t gs_memory_device_max(const char *root, const char *pci);
