/* SPDX-License-Identifier: Apache-2.0
 *
 * undo.c: one user's list: shown, restored, patched again. No state; one thread.
 */
#include "rewriter/undo.h"
#include "rewriter/undo_entry.h"
#include "rewriter/elf/say.h"
#include "rewriter/tree/tree.h"
#include "common/fd.h"
#include "rewriter/output/folder_entry.h"
#include "rewriter/output/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that the removal of a package leaves if patched files could not be restored: a stub
 * in the library's place, and a copy of this tool to restore them with. The file `stub`
 * beside the list has the full path of each, one a line. */

#define STUB_MARK "gpushare-stub-of-a-removed-library" /* runtime/calls/stub.c has it */
#define MOST      (1 << 20)                            /* bytes of a stub */

static bool name_list(char path[PATH_MAX])
{
    char folder[PATH_MAX];

    return elf_registry_folder(folder) &&
           snprintf(path, PATH_MAX, "%s/stub", folder) < PATH_MAX;
}

bool elf_undo_has_stub(void)
{
    char path[PATH_MAX];

    return name_list(path) && access(path, R_OK) == 0;
}

/* Whether the file is a stub: a new installation may have put its library there. */
static bool is_stub(const struct elf_entry *entry)
{
    GS_CLOSE_FD int fd =
        openat(entry->folder, entry->base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *bytes = malloc(MOST);
    ssize_t n = fd >= 0 && bytes != NULL ? read(fd, bytes, MOST) : -1;
    const bool marked = n > 0 && memmem(bytes, (size_t)n, STUB_MARK, sizeof STUB_MARK) != NULL;

    free(bytes);
    return marked;
}

static bool is_this_tool(const struct elf_entry *entry)
{
    struct stat a, b;

    return fstatat(entry->folder, entry->base, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
           stat("/proc/self/exe", &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static void drop_file(const struct elf_root *everything, const char *path)
{
    struct elf_entry entry;

    if (elf_entry_open(&entry, everything, path, NULL) == 0 &&
        (is_stub(&entry) || is_this_tool(&entry)) && unlinkat(entry.folder, entry.base, 0) != 0)
        elf_say(stderr, "gpushare-patch: %s: cannot be removed: %s\n", path, strerror(errno));
    elf_entry_close(&entry);
}

void elf_undo_drop_stub(void)
{
    struct elf_root everything;
    char list[PATH_MAX], line[PATH_MAX + 2];
    FILE *from = name_list(list) ? fopen(list, "re") : NULL;
    char *end;

    if (from == NULL)
        return;
    if (elf_root_open(&everything, "/", NULL) == 0) {
        while (fgets(line, sizeof line, from) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            if (line[0] == '/')
                drop_file(&everything, line);
        }
        elf_root_close(&everything);
        unlink(list);
        *strrchr(list, '/') = '\0';
        end = strrchr(list, '\0');
        snprintf(end, (size_t)(list + sizeof list - end), "/patched");
        if (rmdir(list) == 0) {
            *end = '\0';
            rmdir(list);
        }
        elf_say(stdout, "the last patched file is restored; nothing of gpushare is left\n");
    }
    fclose(from);
}

static const char *name_state(enum elf_undo_state state)
{
    static const char *const names[] = {[ELF_UNDO_PATCHED] = "patched",
                                        [ELF_UNDO_GONE] = "gone",
                                        [ELF_UNDO_REPLACED] = "replaced",
                                        [ELF_UNDO_OTHER] = "changed",
                                        [ELF_UNDO_HIDDEN] = "hidden"};

    return names[state];
}

/* One line, from which `printf %b` makes the name again: a backslash and control characters
 * become \0 and three octal digits. */
static void print_name(const char *name)
{
    for (const unsigned char *p = (const unsigned char *)name; *p != '\0'; p++) {
        if (*p < ' ' || *p == 0x7f || *p == '\\')
            printf("\\0%03o", *p);
        else
            putchar(*p);
    }
    putchar('\n');
}

static enum elf_exit show_list(const struct elf_registry *registry,
                               const struct elf_options *options)
{
    for (size_t i = 0; i < registry->count; i++) {
        const struct elf_listed *entry = &registry->entries[i];

        if (options->quiet)
            print_name(entry->path);
        else
            elf_say(stdout, "%-9s %s\n", name_state(elf_undo_look(entry, NULL, NULL)),
                    entry->path);
    }
    return ELF_EXIT_DONE;
}

/* Restores folders first, each once: that restores links, manifests and RECORD files as
 * well. */
static void restore_folders(const struct elf_registry *registry,
                            const struct elf_options *options)
{
    for (size_t i = 0; i < registry->count; i++) {
        const struct elf_listed *entry = &registry->entries[i];
        bool known = entry->root[0] == '\0';

        for (size_t j = 0; j < i && !known; j++)
            known = strcmp(registry->entries[j].root, entry->root) == 0;
        if (!known)
            elf_undo_restore_root(entry, options);
    }
}

static void forget_entry(const struct elf_listed *entry, const struct elf_options *options)
{
    struct gs_err err = {0};

    if (!options->dry_run && elf_registry_forget(entry->path, &err) != 0)
        elf_say(stderr, "gpushare-patch: %s\n", err.text);
}

/* Restores one entry, or reports why it cannot. */
static enum elf_exit settle_entry(const struct elf_listed *entry,
                                  const struct elf_options *options)
{
    enum elf_undo_state state = elf_undo_look(entry, NULL, NULL);
    enum elf_exit result = ELF_EXIT_DONE;

    if (state == ELF_UNDO_PATCHED && !(options->dry_run && entry->root[0] != '\0')) {
        result = elf_undo_restore(entry, options);
    } else if (state == ELF_UNDO_OTHER || state == ELF_UNDO_HIDDEN) {
        elf_say(stderr, "gpushare-patch: %s: %s; it is left alone and stays listed\n",
                entry->path,
                state == ELF_UNDO_OTHER ? "is patched, but not as it was listed (restore it "
                                          "by hand: --restore)"
                                        : "cannot be looked at");
        return ELF_EXIT_FAILED;
    } else if (entry->root[0] == '\0') {
        elf_say(stdout, "%s: %s; nothing to restore\n", entry->path,
                state == ELF_UNDO_GONE ? "is gone (removed or moved)"
                                       : "was replaced (by an upgrade?)");
    }
    if (result == ELF_EXIT_DONE)
        forget_entry(entry, options);
    return result;
}

static enum elf_exit restore_list(const struct elf_registry *registry,
                                  const struct elf_options *options)
{
    enum elf_exit result = ELF_EXIT_DONE;

    restore_folders(registry, options);
    for (size_t i = 0; i < registry->count; i++)
        result = elf_undo_both(result, settle_entry(&registry->entries[i], options));
    return result;
}

/* Patches an entry that an upgrade has overwritten: a single file by its path, a folder as a
 * whole. */
static enum elf_exit repatch_entry(const struct elf_listed *entry,
                                   const struct elf_options *options)
{
    struct elf_root everything = {.fd = -1};
    struct elf_options again = *options;
    enum elf_exit result = ELF_EXIT_FAILED;
    struct gs_err err = {0};

    again.any = true; /* it was patched before */
    again.lists.repatch = false;
    if (entry->root[0] != '\0') {
        again.any = false;
        again.folder.listed = true;
        again.folder.jobs = 1;
        again.within.programs_only = entry->venv;
        *(entry->venv ? &again.folder.venv : &again.folder.tree) = entry->root;
        return elf_tree(&again);
    }
    again.within.root = &everything;
    if (elf_root_open(&everything, "/", &err) == 0)
        result = elf_act(entry->path, &again, stdout, stderr, NULL);
    elf_root_close(&everything);
    return result;
}

static enum elf_exit repatch_list(const struct elf_registry *registry,
                                  const struct elf_options *options)
{
    const char *last = "";
    enum elf_exit result = ELF_EXIT_DONE;

    for (size_t i = 0; i < registry->count; i++) {
        const struct elf_listed *entry = &registry->entries[i];
        uid_t owner = geteuid();

        if (elf_undo_look(entry, &owner, NULL) != ELF_UNDO_REPLACED ||
            (entry->root[0] != '\0' && strcmp(entry->root, last) == 0))
            continue;
        if (owner != geteuid()) {
            elf_say(stderr,
                    "gpushare-patch: %s: was replaced, and belongs to user %u: it is not "
                    "patched again\n",
                    entry->path, (unsigned)owner);
            result = ELF_EXIT_FAILED;
            continue;
        }
        last = entry->root[0] != '\0' ? entry->root : last;
        result = elf_undo_both(result, repatch_entry(entry, options));
    }
    return result;
}

/* With --runtime: leaves out files that use another installation's library. */
static void leave_out_others(struct elf_registry *registry, const char *runtime)
{
    size_t kept = 0;

    for (size_t i = 0; i < registry->count; i++)
        if (!elf_undo_is_for_another(&registry->entries[i], runtime))
            registry->entries[kept++] = registry->entries[i];
    registry->count = kept;
}

static enum elf_exit undo_own(const struct elf_listed *none, const struct elf_options *options)
{
    enum elf_exit result = ELF_EXIT_NOTHING;
    struct elf_registry registry;
    struct gs_err err = {0};

    (void)none;
    if (elf_registry_read(&registry, &err) != 0) {
        elf_say(stderr, "gpushare-patch: %s\n", err.text);
        result = ELF_EXIT_FAILED;
    }
    if (options->runtime != NULL && !options->lists.repatch)
        leave_out_others(&registry, options->runtime);
    if (registry.count > 0) {
        result = options->lists.list          ? show_list(&registry, options)
                 : options->lists.restore_all ? restore_list(&registry, options)
                                              : repatch_list(&registry, options);
    }
    elf_registry_deinit(&registry);
    return result;
}

enum elf_exit elf_undo(const struct elf_options *options)
{
    bool root = geteuid() == 0;
    /* with --runtime, files of other installations may still need it */
    bool stub = options->lists.restore_all && !options->dry_run && options->runtime == NULL &&
                elf_undo_has_stub();
    enum elf_exit result = undo_own(NULL, options);

    if (options->lists.all_users || (stub && root)) /* the stub serves all users */
        result = elf_undo_both(result, elf_undo_each_user(undo_own, options));
    if (stub && (result == ELF_EXIT_DONE || result == ELF_EXIT_NOTHING))
        elf_undo_drop_stub();
    if (result == ELF_EXIT_NOTHING && !options->quiet)
        elf_say(stdout, "no file is listed as patched\n");
    return result;
}
