/* SPDX-License-Identifier: Apache-2.0
 *
 * gpus.h: the GPUs of the machine beside the daemon's answer: their numbers and state, and the
 * processes on them that the daemon does not know.
 */
#pragma once

#include "lockd/ctl/ctl.h"

/* Why a process on a GPU is not one of the daemon's programs. */
enum ctl_why {
    CTL_UNPREPARED, /* gpushare's library is not loaded in it */
    CTL_ELSEWHERE,  /* the library is loaded: it shares by another daemon, or is switched off */
    CTL_HIDDEN,     /* another user's process: this user may not see what it has loaded */
    CTL_ENDED,      /* it is gone, or in a namespace that cannot be seen from here */
};

struct ctl_outsider {
    uint32_t gpu; /* in answer->gpus.gpus */
    int32_t pid;
    uint32_t uid; /* CTL_NO_USER: not known */
    enum ctl_why why;
    int busy;        /* per cent; CTL_BUSY_UNKNOWN */
    uint64_t memory; /* bytes of the GPU; NVML_BYTES_UNKNOWN */
    char name[32];
};

#define CTL_NO_USER UINT32_MAX

/* Adds what NVML tells to the answer. Accepts NULL for nvml. */
void ctl_gpus_look(struct nvml *nvml, struct ctl_answer *answer);
/* The same with a process of its own. Prints a fault of the library to stderr. */
void ctl_gpus_look_once(struct ctl_answer *answer);

/* A GPU, as status and top show it: at least one of both is there. */
struct ctl_place {
    const struct nvml_gpu *gpu;          /* NULL: NVML does not list it */
    const struct gs_wire_device *device; /* NULL: no program has used it */
};

/* The n-th GPU, from 0: in the order of nvidia-smi, then devices that NVML does not list. False:
 * there are no more. */
bool ctl_place_at(const struct ctl_answer *answer, size_t n, struct ctl_place *place);
/* Whether the outsider is on that GPU. */
bool ctl_outsider_there(const struct ctl_answer *answer, const struct ctl_outsider *outsider,
                        const struct ctl_place *place);
/* "unprepared" and so on. */
const char *ctl_why_name(enum ctl_why why);

/* How busy the device or program at that index is; CTL_BUSY_UNKNOWN: not known. */
int ctl_device_busy(const struct ctl_answer *answer, size_t index);
int ctl_client_busy(const struct ctl_answer *answer, size_t index);

/* Bytes of the GPU that NVML counts for the program and that gpushare does not control: its
 * contexts and its code. NVML_BYTES_UNKNOWN: not known. */
uint64_t ctl_client_external(const struct ctl_answer *answer, size_t index);

/* "41 C, 92 of 400 W": what is known of temperature and power; "": nothing. */
#define CTL_HEAT_SIZE 64
const char *ctl_heat_text(const struct nvml_gpu *gpu, char *buffer);
