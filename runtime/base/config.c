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
struct gs_counts gs_counts GS_ZERO_IN_CHILD;

/* NULL: it is not set. */
static const char *read_text(const char *name)
{
    const char *text = secure_getenv(name);

    return text != NULL && *text != '\0' ? text : NULL;
}

static bool is_set_to(const char *name, const char *word)
{
    const char *text = read_text(name);

    return text != NULL && strcmp(text, word) == 0;
}

/* It is used at exit, when the program's own buffer (putenv) may be gone. */
static const char *copy_path(const char *path)
{
    static char copy[PATH_MAX];

    if (path == NULL || strlen(path) >= sizeof copy)
        return NULL;
    return memcpy(copy, path, strlen(path) + 1);
}

/* False: it is not set, or is no size. */
static bool read_size(const char *name, uint64_t *bytes)
{
    const char *text = read_text(name);

    return text != NULL && gs_size_parse(text, bytes) == 0;
}

/* Said once for each setting that is not as it must be. */
static void check_setting(const char *name, bool fine, bool *said, const char *advice)
{
    const char *text = read_text(name);

    if (text != NULL && !fine)
        gs_say_once(said, "%s=%s is ignored: write %s", name, text, advice);
}

void gs_config_read(struct gs_config *config, bool again)
{
    static bool said[5];
    uint64_t bytes = 0;
    bool fine;

    if (is_set_to("GPUSHARE_DISABLE", "1") || (!again && gs_others_are_first()))
        config->disabled = true;
    config->strict = is_set_to("GPUSHARE_STRICT", "1");
    config->native_memory = is_set_to("GPUSHARE_MEMORY", "native");
    config->managed_memory = is_set_to("GPUSHARE_MEMORY", "managed");
    check_setting("GPUSHARE_MEMORY", config->native_memory || config->managed_memory, &said[0],
                  "native or managed");
    config->stats = copy_path(secure_getenv("GPUSHARE_STATS"));
    config->placed_once = is_set_to("GPUSHARE_PLACEMENT", "once");
    check_setting("GPUSHARE_PLACEMENT", config->placed_once, &said[1], "once");

    config->overcommit = is_set_to("GPUSHARE_OVERCOMMIT", "auto") ? GS_OVERCOMMIT_AUTO : 0;
    config->overcommit_set =
        config->overcommit != 0 || read_size("GPUSHARE_OVERCOMMIT", &config->overcommit);
    check_setting("GPUSHARE_OVERCOMMIT", config->overcommit_set, &said[2],
                  "auto or a size such as 16GiB");
    fine = read_size("GPUSHARE_OVERCOMMIT_GRAIN", &bytes) && bytes != 0 &&
           bytes <= GS_GRAIN_MOST && bytes % GS_GRAIN_LEAST == 0;
    config->grain = fine ? bytes : GS_GRAIN_BYTES;
    check_setting("GPUSHARE_OVERCOMMIT_GRAIN", fine, &said[3],
                  "a multiple of 2MiB, at most 128MiB");
    fine = read_size("GPUSHARE_DEVICE_LIMIT", &bytes) && bytes >= LIMIT_LEAST;
    config->device_limit = fine ? bytes : 0;
    check_setting("GPUSHARE_DEVICE_LIMIT", fine, &said[4],
                  "a size such as 16GiB, at least 2MiB");
}
