/* SPDX-License-Identifier: Apache-2.0
 *
 * way.c: see way.h. No state, any thread.
 */
#include "rewriter/elf/way.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH 2 /* folders below: lib/ollama/cuda_v12 is two below lib; plug-ins of plug-ins */
#define MOST  4000 /* entries that are looked at; a program's own folder has fewer */

struct hunt {
    struct elf_reach *reach;
    struct elf_way *way;
    size_t left; /* entries */
};

/* Whether the file is a library that uses CUDA by itself or by one of its libraries. */
static bool take_plugin(struct hunt *hunt, const char *path)
{
    struct elf_closure closure;
    const struct elf_asker *found = NULL;

    if (elf_closure_make(&closure, hunt->reach, path) == 0 &&
        !closure.list[0]->as.object->program)
        found = elf_closure_cuda(&closure, 0);
    if (found != NULL) {
        hunt->way->kind = ELF_WAY_PLUGIN;
        snprintf(hunt->way->path, sizeof hunt->way->path, "%s", path);
        if (found->asker == NULL)
            snprintf(hunt->way->why, sizeof hunt->way->why, "%s", found->object->why);
        else
            snprintf(hunt->way->why, sizeof hunt->way->why, "loads %.150s", found->path);
    }
    elf_closure_deinit(&closure);
    return found != NULL;
}

static bool is_folder(const struct dirent *entry, const char *path)
{
    struct stat st;

    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The name of a plug-in may have any end: .so, .node, .plugin. */
static void hunt_below(struct hunt *hunt, const char *folder, int depth)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[PATH_MAX];

    while (dir != NULL && hunt->way->kind == ELF_WAY_NONE && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || hunt->left == 0 ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            continue;
        hunt->left--;
        if (!is_folder(entry, path))
            take_plugin(hunt, path);
        else if (depth > 0)
            hunt_below(hunt, path, depth - 1);
    }
    if (dir != NULL)
        closedir(dir);
}

static bool is_system(const char *folder)
{
    static const char *const parts[] = {"bin", "sbin", "lib", "lib32", "lib64", "libexec"};
    const char *at = folder;

    if (strncmp(at, "/usr/", 5) == 0)
        at += 4;
    if (strncmp(at, "/local/", 7) == 0 && at != folder)
        at += 6;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t length = strlen(parts[i]);

        if (strncmp(at + 1, parts[i], length) == 0 &&
            (at[1 + length] == '/' || at[1 + length] == '\0'))
            return true;
    }
    return false;
}

/* Looks for the libraries whose names are in the data of the object, or of a library that comes
 * with it, as dlopen would find them; and for theirs. */
static void hunt_named(struct hunt *hunt, const struct elf_closure *closure, int depth)
{
    for (size_t i = 0; i < closure->count && hunt->way->kind == ELF_WAY_NONE; i++) {
        const struct elf_asker *as = &closure->list[i]->as;

        if (i > 0 && is_system(as->path))
            continue;
        for (size_t j = 0; j < as->object->named_count; j++) {
            struct elf_closure plugin;
            char path[PATH_MAX];

            if (hunt->left == 0 || elf_closure_has(closure, as->object->named[j]))
                continue;
            hunt->left--;
            if (elf_search(hunt->reach, as, as->object->named[j], path) == NULL)
                continue;
            if (take_plugin(hunt, path))
                return;
            if (depth > 0 && !is_system(path) &&
                elf_closure_make(&plugin, hunt->reach, path) == 0) {
                hunt_named(hunt, &plugin, depth - 1);
                elf_closure_deinit(&plugin);
            }
        }
    }
}

/* Looks below each lib beside the bin of the program; of the system's only at what is named after
 * the program. */
static void hunt_beside(struct hunt *hunt, const char *path)
{
    static const char *const libs[] = {"lib", "lib64", "libexec", "lib/x86_64-linux-gnu",
                                       "lib/aarch64-linux-gnu"};
    const char *base = strrchr(path, '/') + 1;
    char folder[PATH_MAX], lib[PATH_MAX + NAME_MAX + 64];
    const char *last;

    snprintf(folder, sizeof folder, "%.*s", base - 1 > path ? (int)(base - 1 - path) : 1, path);
    last = strrchr(folder, '/') + 1;
    if (!is_system(folder))
        hunt_below(hunt, folder, DEPTH);
    if (strcmp(last, "bin") != 0 && strcmp(last, "sbin") != 0 && strcmp(last, "libexec") != 0)
        return;
    for (size_t i = 0; i < sizeof libs / sizeof libs[0]; i++) {
        snprintf(lib, sizeof lib, "%.*s%s%s%s", (int)(last - folder), folder, libs[i],
                 is_system(folder) ? "/" : "", is_system(folder) ? base : "");
        hunt_below(hunt, lib, DEPTH);
    }
}

int elf_way_find(struct elf_way *way, struct elf_reach *reach, const char *path, bool plugins,
                 const char *plugin)
{
    struct hunt hunt = {.reach = reach, .way = way, .left = MOST};
    struct elf_closure closure;
    const struct elf_asker *found;
    int ret = elf_closure_make(&closure, reach, path);

    *way = (struct elf_way){0};
    found = ret == 0 ? elf_closure_cuda(&closure, 1) : NULL;
    if (found != NULL) {
        way->kind = ELF_WAY_LIBRARY;
        if (realpath(found->path, way->path) == NULL)
            snprintf(way->path, sizeof way->path, "%s", found->path);
        snprintf(way->why, sizeof way->why, "%s", found->object->why);
    } else if (ret == 0 && plugins && elf_closure_can_dlopen(&closure)) {
        hunt_named(&hunt, &closure, DEPTH);
        if (way->kind == ELF_WAY_NONE)
            hunt_beside(&hunt, path);
        if (way->kind == ELF_WAY_NONE && plugin != NULL && !is_system(path))
            take_plugin(&hunt, plugin);
        way->in_vain = way->kind == ELF_WAY_NONE;
    }
    elf_closure_deinit(&closure);
    return ret == -ENOMEM ? ret : 0;
}
