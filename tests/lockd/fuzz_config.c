/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_config.c: libFuzzer target: any bytes as the daemon's configuration file. What is taken
 * must be within the bounds that the daemon relies on; what is refused must say where.
 */
#include "lockd/start/config.h"
#include "lockd/protocol/wire_check.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_true(int condition)
{
    if (!condition)
        abort();
}

static int is_time(uint64_t ns)
{
    return ns == LOCKD_AUTO || (ns >= 1000000 && ns <= 3600000000000);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lockd_config config;
    struct gs_err err = {0};

    lockd_config_default(&config);
    if (lockd_config_text(&config, "fuzz", (const char *)data, size, &err) != 0) {
        require_true(strncmp(err.text, "fuzz:", 5) == 0 && err.text[5] >= '1' &&
                     err.text[5] <= '9');
        return 0;
    }
    require_true(is_time(config.set.quantum) && is_time(config.set.idle) &&
                 is_time(config.set.quantum_min) && is_time(config.set.quantum_max));
    require_true(config.set.reserve == LOCKD_AUTO || config.set.reserve <= LOCKD_BYTES_MAX);
    require_true(config.set.policy < GS_POLICY_COUNT && config.set.exclusive <= 1);
    require_true(config.set.hand_over <= 1);
    require_true(config.set.max_messages >= 100 && config.set.max_connections >= 1 &&
                 config.set.max_programs >= 1);
    require_true(strnlen(config.set.control_group, sizeof config.set.control_group) <
                 sizeof config.set.control_group);
    if (lockd_config_finish(&config, &err) == 0)
        require_true(config.hands_over == (config.set.hand_over == 1));
    return 0;
}
