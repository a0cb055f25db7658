/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c: the names of the protocol's numbers, for people and in files. No state.
 */
#include "lockd/protocol/names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "lockd/protocol/wire.h"

const char *lockd_policy_name(uint32_t policy)
{
    static const char *const names[GS_POLICY_COUNT] = {
        [GS_POLICY_FAIR] = "fair",
        [GS_POLICY_FIFO] = "fifo",
        [GS_POLICY_RR] = "rr",
        [GS_POLICY_PRIORITY] = "priority",
    };

    return policy < GS_POLICY_COUNT ? names[policy] : NULL;
}

const char *lockd_operation_name(uint32_t op)
{
    static const char *const names[] = {
        [GS_CONTROL_PAUSE] = "pause",   [GS_CONTROL_RESUME] = "resume",
        [GS_CONTROL_EVICT] = "evict",   [GS_CONTROL_SUSPEND] = "suspend",
        [GS_CONTROL_RELOAD] = "reload",
    };

    return op < sizeof names / sizeof names[0] ? names[op] : NULL;
}

const char *lockd_class_name(uint32_t class_number)
{
    static const char *const names[GS_CLASS_COUNT] = {
        [GS_CLASS_AUTO] = "auto",
        [GS_CLASS_INTERACTIVE] = "interactive",
        [GS_CLASS_BATCH] = "batch",
        [GS_CLASS_BACKGROUND] = "background",
    };

    return class_number < GS_CLASS_COUNT ? names[class_number] : NULL;
}

/* In JSON, and in the notes of `gpusharectl status`. */
static const char *const kin_names[] = {
    [GS_KIN_GROUP] = "group",   [GS_KIN_MASTER] = "rendezvous", [GS_KIN_ELASTIC] = "torchrun",
    [GS_KIN_MPI] = "MPI",       [GS_KIN_SLURM] = "Slurm",       [GS_KIN_NCCL] = "NCCL",
    [GS_KIN_MEMORY] = "memory", [GS_KIN_TRIED] = "tried",       [GS_KIN_SHARED] = "host memory",
    [GS_KIN_PARENT] = "parent", [GS_KIN_SESSION] = "session",
};

const char *lockd_kin_name(uint32_t kind)
{
    return kind < sizeof kin_names / sizeof kin_names[0] ? kin_names[kind] : NULL;
}

char *lockd_uuid_text(const uint8_t *uuid, char *buffer)
{
    size_t at = (size_t)snprintf(buffer, LOCKD_UUID_SIZE, "GPU-");

    for (size_t i = 0; i < 16; i++)
        at += (size_t)snprintf(buffer + at, LOCKD_UUID_SIZE - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    return buffer;
}

bool lockd_uuid_read(const char *text, uint8_t *uuid)
{
    unsigned digits = 0;

    if (strncasecmp(text, "GPU-", 4) != 0 && strncasecmp(text, "MIG-", 4) != 0)
        return false;
    for (text += 4; *text != '\0'; text++) {
        static const char hex[] = "0123456789abcdef";
        const char *at = strchr(hex, *text | 0x20);

        if (*text == '-')
            continue;
        if (at == NULL || digits == 32)
            return false;
        uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | (at - hex));
        digits++;
    }
    return digits == 32;
}
