/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.c: owns the log (SIMCUDA_LOG), and the faults, delays and stops that tests order
 * (SIMCUDA_FAIL, SIMCUDA_SLOW, SIMCUDA_STOP).
 *
 * SIMCUDA_FAIL is a list, separated by commas, of
 *   name:n:code        the n-th call of name in this process fails with CUresult code (n = 0:
 * every call) name:pF:code:seed  each call fails with probability F (0 to 1), drawn from a
 * generator started with seed name is the driver function, with or without _v2, _ptsz and the
 * like: cuMemAlloc stands for all of its versions. The path of a file stands for the list that is
 * in it at the first call of the process. A rule that cannot be read is reported on stderr and in
 * the log: a test must not pass because its fault never came.
 *
 * SIMCUDA_SLOW is one name:ms: each call of name waits so long before it does anything, and says
 * in the log that it does.
 *
 * SIMCUDA_STOP names a file that holds one name:n. The process whose n-th call of name comes (those
 * made while the file is there count) removes the file and stops itself by SIGSTOP before the call
 * does anything: so one process stops, once. Threads: rules under sim.lock; the log is one
 * write(2) per line.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/simcuda/sim.h"

#define RULES_MAX 32

struct rule {
    char name[64];
    unsigned long long nth, calls;
    double probability; /* < 0: by number */
    uint64_t random;
    CUresult code;
};

static struct rule rules[RULES_MAX];
static unsigned rule_count;
static bool rules_read;

void sim_log(const char *format, ...)
{
    const char *path = getenv("SIMCUDA_LOG");
    char line[512];
    va_list arguments;

    if (!path || !*path)
        return;
    int length = snprintf(line, sizeof line, "[%d] ", (int)getpid());
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length++] = '\n';
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    if (write(fd, line, (size_t)length) != length)
        dprintf(STDERR_FILENO, "simcuda: cannot write the log %s\n", path);
    close(fd);
}

/* Length of name without its version and stream suffixes. */
static size_t base_length(const char *name)
{
    size_t length = strlen(name);

    if (length > 5 &&
        (!strcmp(name + length - 5, "_ptsz") || !strcmp(name + length - 5, "_ptds")))
        length -= 5;
    if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v')
        length -= 3;
    return length;
}

static bool read_rule(const char *text, struct rule *rule)
{
    char count[32] = "", code[8] = "", seed[21] = "1", rest = '\0';
    const int fields = sscanf(text, "%63[A-Za-z0-9_]:%31[0-9.p]:%7[0-9]:%20[0-9]%c", rule->name,
                              count, code, seed, &rest);

    rule->code = (CUresult)strtoul(code, NULL, 10);
    if (fields < 3 || fields > 4 || rule->code == CUDA_SUCCESS)
        return false;
    rule->probability = -1;
    char *end = NULL;
    if (count[0] == 'p')
        rule->probability = strtod(count + 1, &end);
    else
        rule->nth = strtoull(count, &end, 10);
    rule->random = strtoull(seed, NULL, 10) | 1u; /* never 0 */
    return end != count && *end == '\0' && rule->probability <= 1;
}

/* SIMCUDA_FAIL, or what the file holds that it names. */
static const char *find_rules(void)
{
    static char held[1024];
    const char *text = getenv("SIMCUDA_FAIL");
    FILE *file = text && *text == '/' ? fopen(text, "re") : NULL;

    if (!text || *text != '/')
        return text;
    if (file) {
        held[fread(held, 1, sizeof held - 1, file)] = '\0';
        fclose(file);
    }
    return held;
}

static void read_rules(void)
{
    const char *text = find_rules();

    rules_read = true;
    while (text && *text) {
        char one[128];
        const size_t length = strcspn(text, ",");
        snprintf(one, sizeof one, "%.*s", (int)(length < 127 ? length : 127), text);
        if (rule_count < RULES_MAX && read_rule(one, &rules[rule_count])) {
            rule_count++;
        } else if (*one) {
            sim_log("SIMCUDA_FAIL: cannot read the rule \"%s\"", one);
            dprintf(STDERR_FILENO,
                    "simcuda: SIMCUDA_FAIL: cannot read \"%s\"; write name:n:code or "
                    "name:pF:code:seed\n",
                    one);
        }
        text += length + (text[length] == ',');
    }
}

static bool rule_due(struct rule *rule)
{
    rule->calls++;
    if (rule->probability < 0)
        return rule->nth == 0 || rule->nth == rule->calls;
    rule->random ^= rule->random << 13; /* xorshift64 */
    rule->random ^= rule->random >> 7;
    rule->random ^= rule->random << 17;
    return (double)(rule->random >> 11) / 9007199254740992.0 < rule->probability;
}

/* The versions of a function are meant by the name of the first one. */
static bool is_meant(const char *meant, size_t length, const char *name)
{
    return (strlen(name) == length || base_length(name) == length) &&
           !memcmp(meant, name, length);
}

unsigned sim_delay_due(const char *name)
{
    const char *text = getenv("SIMCUDA_SLOW"), *colon = text ? strchr(text, ':') : NULL;

    if (!colon || !is_meant(text, (size_t)(colon - text), name))
        return 0;
    sim_log("%s is slow", name);
    return (unsigned)strtoul(colon + 1, NULL, 10);
}

void sim_stop_if_due(const char *name)
{
    static _Atomic(unsigned) calls;
    const char *path = getenv("SIMCUDA_STOP");
    FILE *file = path && *path ? fopen(path, "re") : NULL;
    char meant[80] = "", *colon;
    unsigned long nth = 0;

    if (!file)
        return;
    if (fgets(meant, sizeof meant, file) && (colon = strchr(meant, ':')) != NULL) {
        *colon = '\0';
        nth = strtoul(colon + 1, NULL, 10);
    }
    fclose(file);
    if (is_meant(meant, strlen(meant), name) &&
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1 == nth &&
        unlink(path) == 0) {
        sim_log("%s stops", name);
        raise(SIGSTOP);
    }
}

CUresult sim_fault_due(const char *name)
{
    CUresult due = CUDA_SUCCESS;

    if (!rules_read)
        read_rules();
    for (unsigned i = 0; i < rule_count; i++) {
        if (is_meant(rules[i].name, strlen(rules[i].name), name) && rule_due(&rules[i]) && !due)
            due = rules[i].code;
    }
    return due;
}
