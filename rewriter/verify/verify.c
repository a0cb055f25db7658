/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c: checks the meaning of a new file by our own reader, then by the loader (its bytes are
 * checked in copy.c, libelf's reading in second.c).
 *
 * No state; elf_verify_loader() starts and awaits a child process.
 */
#include "rewriter/verify/verify.h"
#include "rewriter/elf/dynamic.h"
#include "rewriter/elf/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* Checks that a patched file means the same as the original, except for the planned
 * changes.
 *
 * Looks at the new file only with the reader, not with the plan's intermediate results. */

static int refuse_wrong(const struct elf_plan *plan, const char *what, uint64_t which,
                        struct gs_err *err)
{
    return elf_distrust(plan->image->source.name, err, "the new file's %s %llu is wrong", what,
                        (unsigned long long)which);
}

static int is_same_load(const struct elf_plan *plan, size_t index, const Elf64_Phdr *old,
                        const Elf64_Phdr *new)
{
    Elf64_Phdr grown = *old;

    if (plan->slot.way == ELF_SLOT_PADDING && index == plan->slot.added) {
        grown.p_filesz = plan->tail.marker.offset + plan->tail.marker.size - old->p_offset;
        grown.p_memsz = grown.p_filesz;
    }
    return memcmp(&grown, new, sizeof grown) == 0;
}

/* Every PT_LOAD of the original is there, unchanged, in order; one more follows. */
static int check_loads(const struct elf_plan *plan, const struct elf_image *new,
                       struct gs_err *err)
{
    const struct elf_image *old = plan->image;
    size_t j = 0;

    for (size_t i = 0; i < old->header.e_phnum; i++) {
        if (old->segments[i].p_type != PT_LOAD)
            continue;
        while (j < new->header.e_phnum &&new->segments[j].p_type != PT_LOAD)
            j++;
        if (j == new->header.e_phnum ||
            !is_same_load(plan, i, &old->segments[i], &new->segments[j]))
            return refuse_wrong(plan, "program header", j, err);
        j++;
    }
    while (j < new->header.e_phnum &&new->segments[j].p_type != PT_LOAD)
        j++;
    if (plan->slot.way == ELF_SLOT_PADDING)
        return j == new->header.e_phnum ? 0 : refuse_wrong(plan, "program header", j, err);
    if (j == new->header.e_phnum || new->segments[j].p_vaddr < old->highest)
        return refuse_wrong(plan, "program header", j, err);
    for (j++; j < new->header.e_phnum; j++)
        if (new->segments[j].p_type == PT_LOAD)
            return refuse_wrong(plan, "program header", j, err);
    return 0;
}

static int is_same_name(const struct elf_plan *plan, int64_t tag, const char *old,
                        const char *new)
{
    bool pinned = plan->origin != NULL && tag != DT_SONAME;
    char *wanted = pinned ? elf_origin_expand(old, plan->origin) : NULL;
    int same = pinned ? wanted != NULL && strcmp(wanted, new) == 0 : strcmp(old, new) == 0;

    free(wanted);
    return same;
}

static int is_same_entry(const struct elf_plan *plan, const Elf64_Dyn *a,
                         const struct elf_image *new, const Elf64_Dyn *b)
{
    const char *x, *y;

    if (a->d_tag != b->d_tag)
        return 0;
    if (!elf_dynamic_is_name(a->d_tag))
        return a->d_un.d_val == b->d_un.d_val || a->d_tag == DT_STRTAB ||
               a->d_tag == DT_STRSZ || a->d_tag == DT_HASH || a->d_tag == DT_GNU_HASH ||
               a->d_tag == DT_SYMTAB || a->d_tag == DT_VERSYM || a->d_tag == DT_VERNEED ||
               a->d_tag == DT_VERDEF || a->d_tag == DT_INIT;
    x = elf_image_string(plan->image, a->d_un.d_val);
    y = elf_image_string(new, b->d_un.d_val);
    return x == y || (x != NULL && y != NULL && is_same_name(plan, a->d_tag, x, y));
}

static int check_dynamic(const struct elf_plan *plan, const struct elf_image *new,
                         struct gs_err *err)
{
    const struct elf_image *old = plan->image;
    const char *runtime = plan->names.bytes; /* the first name that was added */
    size_t j = 0;
    int inserted = 0;

    for (size_t i = 0; i < new->dynamic.count; i++) {
        const Elf64_Dyn *entry = &new->dynamic.entries[i];
        const char *name =
            entry->d_tag == DT_NEEDED ? elf_image_string(new, entry->d_un.d_val) : NULL;

        /* this one must be ours */
        if (!inserted && name != NULL && !elf_dynamic_stays_first(name)) {
            if (strcmp(name, runtime) != 0)
                return refuse_wrong(plan, "dynamic entry", i, err);
            inserted = 1;
            continue;
        }
        if (j < old->dynamic.count &&
            !is_same_entry(plan, &old->dynamic.entries[j], new, entry) &&
            elf_dynamic_may_go(old->dynamic.entries[j].d_tag))
            j++; /* replaced by the new entry */
        if (j >= old->dynamic.count ||
            !is_same_entry(plan, &old->dynamic.entries[j], new, entry))
            return refuse_wrong(plan, "dynamic entry", i, err);
        j++;
    }
    while (j < old->dynamic.count && elf_dynamic_may_go(old->dynamic.entries[j].d_tag))
        j++;
    return inserted && j == old->dynamic.count ? 0
                                               : refuse_wrong(plan, "dynamic entry", j, err);
}

/* Behind the old strings new strings may follow. The other tables are checked with libelf's
 * reading (second.c). */
static int check_strings(const struct elf_plan *plan, const struct elf_image *new,
                         struct gs_err *err)
{
    const struct elf_image *old = plan->image;

    if (old->tables.symbol_count != new->tables.symbol_count ||
        new->tables.strings.size < old->tables.strings.size ||
        memcmp(old->tables.string_bytes, new->tables.string_bytes, old->tables.strings.size) !=
            0 ||
        (old->interpreter == NULL) != (new->interpreter == NULL) ||
        (old->interpreter != NULL && strcmp(old->interpreter, new->interpreter) != 0))
        return refuse_wrong(plan, "string table of size", new->tables.strings.size, err);
    return 0;
}

/* Sections keep number, name and type; ours are there and lead to marker and note. */
static int check_sections(const struct elf_plan *plan, const struct elf_image *new,
                          struct gs_err *err)
{
    const struct elf_image *old = plan->image;
    size_t marker = elf_image_section(new, ELF_MARKER_SECTION);

    if (plan->slot.way == ELF_SLOT_PADDING) /* the very same headers */
        return new->section_count == old->section_count &&
                       (old->section_count == 0 ||
                        memcmp(old->sections, new->sections,
                               old->section_count * sizeof *old->sections) == 0)
                   ? 0
                   : refuse_wrong(plan, "section", 0, err);
    if (old->section_count == 0)
        return new->section_count == 0 ? 0 : refuse_wrong(plan, "section", 0, err);
    if (new->section_count <= old->section_count || marker == ELF_NO_SECTION ||
        new->sections[marker].sh_offset != plan->tail.marker.offset ||
        new->sections[marker].sh_size != plan->tail.marker.size)
        return refuse_wrong(plan, "section", marker, err);
    for (size_t i = 1; i < old->section_count; i++)
        if (old->sections[i].sh_type != new->sections[i].sh_type ||
            strcmp(elf_image_section_name(old, i), elf_image_section_name(new, i)) != 0)
            return refuse_wrong(plan, "section", i, err);
    return 0;
}

/* The undo note must give the original back. copy.c compared everything outside the changes;
 * this checks the changes. */
static int check_undo(const struct elf_plan *plan, const struct elf_source *source,
                      struct gs_err *err)
{
    struct elf_note note;
    int ret = 0;

    if (elf_note_find(&note, source) != ELF_NOTE_FOUND || note.lost.code != 0 || note.relaid ||
        note.head.original_size != plan->image->source.size ||
        strcmp(note.text, plan->marker) != 0)
        ret = refuse_wrong(plan, "undo note of size", plan->tail.undo_size, err);
    for (size_t i = 0; ret == 0 && i < note.undo_count; i++) {
        uint8_t *original = elf_source_load(&plan->image->source, note.undo[i].offset,
                                            note.undo[i].length, err);

        if (original == NULL || memcmp(original, note.undo[i].bytes, note.undo[i].length) != 0)
            ret = refuse_wrong(plan, "undo entry", i, err);
        free(original);
    }
    for (size_t i = 0; ret == 0 && i < plan->changes.count; i++) {
        const struct elf_change *change = &plan->changes.list[i];
        size_t j = 0;

        while (j < note.undo_count &&
               (change->offset < note.undo[j].offset ||
                change->offset + change->length > note.undo[j].offset + note.undo[j].length))
            j++;
        if (j == note.undo_count)
            ret = refuse_wrong(plan, "change without undo,", i, err);
    }
    elf_note_deinit(&note);
    return ret;
}

int elf_verify_meaning(const struct elf_plan *plan, const struct elf_image *new,
                       struct gs_err *err)
{
    int ret = check_loads(plan, new, err);

    ret = ret ?: check_dynamic(plan, new, err);
    ret = ret ?: check_strings(plan, new, err);
    ret = ret ?: check_sections(plan, new, err);
    return ret ?: check_undo(plan, &new->source, err);
}

int elf_verify_untouched(const struct elf_image *original, const struct elf_source *raw,
                         const char *runtime, const char *origin, struct gs_err *err)
{
    const struct elf_plan said = {
        .image = original, .origin = origin, .names.bytes = (char *)(uintptr_t)runtime};
    struct elf_image now;
    int ret = elf_image_read(&now, raw, err);

    if (ret != 0)
        return ret;
    if (check_dynamic(&said, &now, NULL) != 0 ||
        memcmp(original->tables.string_bytes, now.tables.string_bytes,
               original->tables.strings.size < now.tables.strings.size
                   ? original->tables.strings.size
                   : now.tables.strings.size) != 0)
        ret = elf_refuse(raw->name, err,
                         "its dynamic section was edited after it was patched (chrpath, "
                         "patchelf?), and patching it again would undo that; restore it with "
                         "--restore (which drops the edit too), edit it, then patch it");
    elf_image_deinit(&now);
    return ret;
}

/* This machine, and the path of glibc's loader for it (the ABI fixes it). */
#ifdef __x86_64__
#define HOST_MACHINE EM_X86_64
#define LOADER       "/lib64/ld-linux-x86-64.so.2"
#else
#define HOST_MACHINE EM_AARCH64
#define LOADER       "/lib/ld-linux-aarch64.so.1"
#endif

/* Results of rtld.c: 0 a program of this loader, 2 an object without interpreter, 1 an object
 * that it cannot load. */
static int ask_loader(int fd, bool *accepted)
{
    char *const empty[] = {NULL};
    char *const argv[] = {(char *)(uintptr_t)LOADER, (char *)(uintptr_t) "--verify",
                          (char *)(uintptr_t) "/proc/self/fd/3", NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0, ret = posix_spawn_file_actions_init(&actions);

    if (ret != 0)
        return -ret;
    ret = posix_spawn_file_actions_addclose(&actions, 1); /* there may be no /dev/null */
    ret = ret ?: posix_spawn_file_actions_addclose(&actions, 2);
    ret = ret ?: posix_spawn_file_actions_adddup2(&actions, fd, 3);
    ret = ret ?: posix_spawn(&pid, LOADER, &actions, NULL, argv, empty);
    posix_spawn_file_actions_destroy(&actions);
    if (ret != 0)
        return -ret;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    *accepted = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2);
    return 0;
}

int elf_verify_loader(const struct elf_image *image, int old, int fd, struct gs_err *err)
{
    const char *name = image->source.name;
    bool accepted = false, accepted_old = false;
    struct statvfs mounted;
    int ret;

    if (fstatvfs(fd, &mounted) == 0 && (mounted.f_flag & ST_NOEXEC))
        return 0; /* it accepts nothing on such a mount */
    /* only the system's own loader is run, never a loader that the file names */
    if (image->header.e_machine != HOST_MACHINE || access(LOADER, X_OK) != 0 ||
        (image->interpreter != NULL && strcmp(image->interpreter, LOADER) != 0))
        return 0;
    if (access("/proc/self/fd", X_OK) != 0)
        return gs_err_set(
            err, -EIO,
            "%s: the loader cannot check the new file, because /proc is not mounted; "
            "mount it",
            name);
    ret = ask_loader(fd, &accepted);
    if (ret == 0 && !accepted)
        ret = ask_loader(old, &accepted_old);
    if (ret != 0)
        return gs_err_errno(err, ret, "%s: cannot run %s --verify", name, LOADER);
    if (accepted)
        return 0;
    if (!accepted_old)
        return elf_refuse(name, err, "damaged: %s does not accept it", LOADER);
    return elf_distrust(name, err, "%s --verify does not accept the new file", LOADER);
}
