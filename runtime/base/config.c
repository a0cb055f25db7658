/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c: owns the one runtime object of the process, and reads its configuration from the
 * environment.
 */
#include "runtime/base/config.h"

#include <limits.h>

#include "common/size.h"
#include "runtime/base/others.h"

#define LIMIT_LEAST (2ull << 20) /* bytes: memory is given in pieces of that size */

struct gs_runtime gs_runtime;

static bool is_set_to_one(const char *name)
{
    const char *value = secure_getenv(name);

    return value != NULL && strcmp(value, "1") == 0;
}

/* It is used at exit, when the program's own buffer (putenv) may be gone. */
static const char *copy_path(const char *path)
{
    static char copy[PATH_MAX];

    if (path == NULL || strlen(path) >= sizeof copy)
        return NULL;
    return memcpy(copy, path, strlen(path) + 1);
}

static void read_overcommit(struct gs_config *config)
{
    const char *text = secure_getenv("GPUSHARE_OVERCOMMIT");
    static bool said;

    config->overcommit_set = false;
    config->overcommit = 0;
    if (text == NULL || *text == '\0')
        return;
    config->overcommit_set = true;
    if (strcmp(text, "auto") == 0)
        config->overcommit = GS_OVERCOMMIT_AUTO;
    else if (gs_size_parse(text, &config->overcommit) != 0) {
        config->overcommit_set = false;
        gs_say_once(&said,
                    "GPUSHARE_OVERCOMMIT=%s is ignored: write auto or a size such as 16GiB",
                    text);
    }
}

static void read_grain(struct gs_config *config)
{
    const char *text = secure_getenv("GPUSHARE_OVERCOMMIT_GRAIN");
    static bool said;

    config->grain = GS_GRAIN_BYTES;
    if (text == NULL || *text == '\0')
        return;
    if (gs_size_parse(text, &config->grain) != 0 || config->grain == 0 ||
        config->grain > GS_GRAIN_MOST || config->grain % GS_GRAIN_LEAST != 0) {
        config->grain = GS_GRAIN_BYTES;
        gs_say_once(
            &said,
            "GPUSHARE_OVERCOMMIT_GRAIN=%s is ignored: write a multiple of 2MiB, at most "
            "128MiB",
            text);
    }
}

void gs_config_read(struct gs_config *config, bool again)
{
    const char *limit = secure_getenv("GPUSHARE_DEVICE_LIMIT"),
               *memory = secure_getenv("GPUSHARE_MEMORY"),
               *placement = secure_getenv("GPUSHARE_PLACEMENT");
    static bool said, said_memory, said_placement;

    if (is_set_to_one("GPUSHARE_DISABLE") || (!again && gs_others_are_first()))
        config->disabled = true;
    config->strict = is_set_to_one("GPUSHARE_STRICT");
    config->native_memory = memory != NULL && strcmp(memory, "native") == 0;
    config->managed_memory = memory != NULL && strcmp(memory, "managed") == 0;
    config->stats = copy_path(secure_getenv("GPUSHARE_STATS"));
    read_overcommit(config);
    read_grain(config);
    config->placed_once = placement != NULL && strcmp(placement, "once") == 0;
    if (placement != NULL && *placement != '\0' && !config->placed_once)
        gs_say_once(&said_placement, "GPUSHARE_PLACEMENT=%s is ignored: write once", placement);
    config->device_limit = 0;
    if (limit != NULL && *limit != '\0' &&
        (gs_size_parse(limit, &config->device_limit) != 0 ||
         config->device_limit < LIMIT_LEAST)) {
        config->device_limit = 0;
        gs_say_once(
            &said,
            "GPUSHARE_DEVICE_LIMIT=%s is ignored: write a size such as 16GiB, at least 2MiB",
            limit);
    }
    if (memory != NULL && *memory != '\0' && !config->native_memory && !config->managed_memory)
        gs_say_once(&said_memory, "GPUSHARE_MEMORY=%s is ignored: write native or managed",
                    memory);
}

void gs_config_after_fork(void)
{
    atomic_store(&gs_runtime.moved_out, 0);
    atomic_store(&gs_runtime.moved_in, 0);
    atomic_store(&gs_runtime.saved.equal, 0);
    atomic_store(&gs_runtime.saved.zero, 0);
    atomic_store(&gs_runtime.saved.unchanged, 0);
    atomic_store(&gs_runtime.given, 0);
    atomic_store(&gs_runtime.taken_over, 0);
    atomic_store(&gs_runtime.exchanged, 0);
    atomic_store(&gs_runtime.switches, 0);
}
