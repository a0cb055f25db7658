/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_left.c: reads /proc/meminfo, /proc/PID/cgroup, the mounts of the memory hierarchy in
 * /proc/self/mountinfo, and the files of the groups there. No state.
 *
 * A mount may show only a part of the hierarchy: in a container it begins at the container's
 * own group, and the paths in /proc/PID/cgroup begin there (cgroup namespace) or at the
 * machine's root (none). Only the part of a group's path behind the mount's root is looked up.
 * The limits of device memory (dmem.max) are in the same hierarchy of version 2.
 */
#include "common/memory_left.h"

#include <limits.h>
#include <string.h>

#include "common/fd.h"

#define LINE_SIZE (2 * PATH_MAX)
#define NO_LIMIT  (1ull << 62) /* version 1 writes "none" as a number close to 2^63 */

/* the names of the same files in both versions */
struct names {
    const char *limit, *high, *usage, *inactive;
};

static const struct names names_of[] = {
    {"memory.max", "memory.high", "memory.current", "inactive_file "},
    {"memory.limit_in_bytes", NULL, "memory.usage_in_bytes", "total_inactive_file "},
};

static uint64_t lesser_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static FILE *open_in(const char *root, const char *path)
{
    char full[PATH_MAX];

    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return NULL;
    return fopen(full, "re");
}

/* Reads a line without its end; skips the part that is longer than the buffer. */
static bool read_line(FILE *file, char *line, size_t size)
{
    size_t length;
    int c = '\0';

    if (fgets(line, (int)size, file) == NULL)
        return false;
    length = strlen(line);
    if (length != 0 && line[length - 1] == '\n') {
        line[length - 1] = '\0';
        return true;
    }
    while (c != '\n' && c != EOF)
        c = getc(file);
    return true;
}

static uint64_t parse_number(const char *text)
{
    char *end;
    unsigned long long value;

    if (*text < '0' || *text > '9')
        return UINT64_MAX;
    errno = 0;
    value = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\0' || *end == ' ') ? value : UINT64_MAX;
}

/* Returns the number behind key at the start of a line; "": of the first line. */
static uint64_t find_number(FILE *file, const char *key)
{
    const size_t length = strlen(key);
    uint64_t value = UINT64_MAX;
    char line[128];

    if (file == NULL)
        return UINT64_MAX;
    while (value == UINT64_MAX && read_line(file, line, sizeof line)) {
        if (strncmp(line, key, length) == 0)
            value = parse_number(line + length + strspn(line + length, " "));
        if (length == 0)
            break;
    }
    fclose(file);
    return value;
}

uint64_t gs_memory_machine(const char *root)
{
    GS_KEEP_ERRNO;
    const uint64_t kib = find_number(open_in(root, "/proc/meminfo"), "MemAvailable:");

    return kib <= UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
}

/* --- which group --- */

/* word is one of those in the list, which is separated by commas */
static bool list_has(const char *list, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* True if the path leads above the root of the namespace, or beside it. */
static bool leads_out(const char *path)
{
    return strncmp(path, "/..", 3) == 0 && (path[3] == '/' || path[3] == '\0');
}

/* Reads one line, ID:CONTROLLERS:PATH. Version 2 lists no controllers there; if version 1 has
 * the memory controller, version 2 has not. */
static void take_group(struct gs_memory_group *group, char *line)
{
    char *controllers = strchr(line, ':'), *path;
    bool first;

    path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL)
        return;
    *path++ = '\0';
    first = list_has(controllers + 1, "memory");
    if ((!first && (strcmp(line, "0:") != 0 || group->first)) || path[0] != '/' ||
        strlen(path) >= sizeof group->path)
        return;
    group->first = first;
    group->known = !leads_out(path);
    snprintf(group->path, sizeof group->path, "%s", strcmp(path, "/") == 0 ? "" : path);
}

void gs_memory_group_of(struct gs_memory_group *group, const char *root, pid_t pid)
{
    GS_KEEP_ERRNO;
    char name[64], line[LINE_SIZE];
    GS_CLOSE_FILE FILE *file = NULL;

    snprintf(name, sizeof name, "/proc/%d/cgroup", (int)pid);
    file = open_in(root, pid != 0 ? name : "/proc/self/cgroup");
    group->known = group->first = false;
    group->path[0] = '\0';
    while (file != NULL && read_line(file, line, sizeof line))
        take_group(group, line);
}

bool gs_memory_group_join(struct gs_memory_group *group, const struct gs_memory_group *other)
{
    size_t same = 0, at;

    if (!group->known)
        return false;
    if (!other->known || other->first != group->first) {
        group->known = false;
        return true;
    }
    for (at = 0; group->path[at] != '\0' && group->path[at] == other->path[at]; at++)
        if (group->path[at] == '/')
            same = at;
    if (group->path[at] == '\0' && (other->path[at] == '\0' || other->path[at] == '/'))
        return false;
    if (group->path[at] == '/' && other->path[at] == '\0')
        same = at;
    group->path[same] = '\0';
    return true;
}

/* --- where it is mounted --- */

struct mount {
    char top[PATH_MAX];   /* of the hierarchy: where it begins to be seen */
    char point[PATH_MAX]; /* where it is seen */
};

/* \OCTAL in place of space, tab, end of line and backslash */
static void unescape_path(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
            from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* Reads a line of mountinfo (proc_pid_mountinfo(5)); false: it is no mount of the hierarchy. */
static bool read_mount(const char *line, bool first, struct mount *mount)
{
    const char *kind = strstr(line, " - ");
    char type[16], options[512];

    if (kind == NULL || sscanf(kind, " - %15s %*s %511s", type, options) != 2 ||
        sscanf(line, "%*s %*s %*s %4095s %4095s", mount->top, mount->point) != 2)
        return false;
    if (strcmp(type, first ? "cgroup" : "cgroup2") != 0 ||
        (first && !list_has(options, "memory")))
        return false;
    unescape_path(mount->top);
    unescape_path(mount->point);
    return true;
}

/* The part of the group's path below the mount's root; NULL: it is not there. */
static const char *path_below(const struct mount *mount, const char *path)
{
    const size_t length = strcmp(mount->top, "/") == 0 ? 0 : strlen(mount->top);

    if (strncmp(path, mount->top, length) != 0)
        return NULL;
    return path[length] == '/' || path[length] == '\0' ? path + length : NULL;
}

/* --- what is left --- */

static uint64_t read_number(const char *folder, const char *name, const char *key)
{
    char path[PATH_MAX];

    if (name == NULL || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return UINT64_MAX;
    return find_number(open_in("", path), key);
}

static uint64_t folder_leaves(const char *folder, const struct names *names, uint64_t limit)
{
    uint64_t used, inactive;

    limit = lesser_of(limit, read_number(folder, names->limit, ""));
    limit = lesser_of(limit, read_number(folder, names->high, ""));
    if (limit >= NO_LIMIT)
        return UINT64_MAX;
    used = read_number(folder, names->usage, "");
    inactive = read_number(folder, "memory.stat", names->inactive);
    if (used == UINT64_MAX)
        return limit;
    used -= inactive != UINT64_MAX ? lesser_of(inactive, used) : 0;
    return limit - lesser_of(used, limit);
}

/* The least in a dmem.max, whose lines are `drm/PCI/REGION BYTES` or `… max`
 * (Documentation/admin-guide/cgroup-v2.rst, DMEM). Regions that are not the device's own memory
 * have other names (stolen, gtt). */
static uint64_t folder_allows(const char *folder, const char *pci)
{
    uint64_t most = UINT64_MAX;
    char path[PATH_MAX], line[256];
    GS_CLOSE_FILE FILE *file = NULL;

    if (snprintf(path, sizeof path, "%s/dmem.max", folder) >= (int)sizeof path)
        return UINT64_MAX;
    file = fopen(path, "re");
    while (file != NULL && read_line(file, line, sizeof line)) {
        char *number = strrchr(line, ' ');

        if (number == NULL)
            continue;
        *number++ = '\0';
        if (strcasestr(line, pci) != NULL &&
            (strstr(line, "vram") != NULL || strstr(line, "vidmem") != NULL))
            most = lesser_of(most, parse_number(number));
    }
    return most;
}

/* The least that the group and those above it leave, as far up as the mount shows them; pci: that
 * they allow on that device. Version 1 also reports the tightest limit of all, and may count a
 * group without those below it. */
static uint64_t mount_leaves(const char *root, const struct mount *mount, const char *below,
                             bool first, const char *pci)
{
    const size_t top = strlen(root) + strlen(mount->point);
    char folder[PATH_MAX];
    uint64_t left = UINT64_MAX, limit = UINT64_MAX;

    if (snprintf(folder, sizeof folder, "%s%s%s", root, mount->point, below) >=
        (int)sizeof folder)
        return UINT64_MAX;
    if (first)
        limit = read_number(folder, "memory.stat", "hierarchical_memory_limit ");
    for (;; limit = UINT64_MAX) {
        left = lesser_of(left, pci != NULL ? folder_allows(folder, pci)
                                           : folder_leaves(folder, &names_of[first], limit));
        if (strlen(folder) <= top)
            return left;
        *strrchr(folder, '/') = '\0';
        if (first && read_number(folder, "memory.use_hierarchy", "") == 0)
            return left;
    }
}

uint64_t gs_memory_group_left(const struct gs_memory_group *group, const char *root)
{
    GS_KEEP_ERRNO;
    uint64_t left = UINT64_MAX, elsewhere = UINT64_MAX;
    bool found = false;
    char line[LINE_SIZE];
    struct mount mount;
    GS_CLOSE_FILE FILE *file = group->known ? open_in(root, "/proc/self/mountinfo") : NULL;

    while (file != NULL && read_line(file, line, sizeof line)) {
        const char *below;

        if (!read_mount(line, group->first, &mount))
            continue;
        below = path_below(&mount, group->path);
        found = found || below != NULL;
        if (below != NULL)
            left = lesser_of(left, mount_leaves(root, &mount, below, group->first, NULL));
        else
            elsewhere =
                lesser_of(elsewhere, mount_leaves(root, &mount, "", group->first, NULL));
    }
    return found ? left : elsewhere; /* in a container the mounted part counts */
}

/* --- device memory --- */

/* This process's group of version 2, which has that controller, whatever version has memory. */
static bool find_second(const char *root, char *group, size_t size)
{
    char line[LINE_SIZE];
    GS_CLOSE_FILE FILE *file = open_in(root, "/proc/self/cgroup");
    bool found = false;

    while (file != NULL && !found && read_line(file, line, sizeof line)) {
        found = strncmp(line, "0::/", 4) == 0 && !leads_out(line + 3);
        if (found)
            found = snprintf(group, size, "%s", line[4] != '\0' ? line + 3 : "") < (int)size;
    }
    return found;
}

uint64_t gs_memory_device_max(const char *root, const char *pci)
{
    GS_KEEP_ERRNO;
    char group[GS_GROUP_PATH], line[LINE_SIZE];
    uint64_t most = UINT64_MAX;
    struct mount mount;
    GS_CLOSE_FILE FILE *file =
        find_second(root, group, sizeof group) ? open_in(root, "/proc/self/mountinfo") : NULL;

    while (file != NULL && read_line(file, line, sizeof line)) {
        const char *below;

        if (!read_mount(line, false, &mount))
            continue;
        below = path_below(&mount, group);
        most =
            lesser_of(most, mount_leaves(root, &mount, below != NULL ? below : "", false, pci));
    }
    return most;
}
