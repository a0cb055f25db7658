/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c: the loader's own check of a new file (the bytes are checked in copy.c, the
 * meaning in meaning.c), and the second reader.
 *
 * No state; elf_verify_loader() starts and awaits a child process.
 */
#include "rewriter/verify/verify.h"
#include "rewriter/verify/session.h"
#include "rewriter/verify/tables.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* The path of glibc's loader on a system of that machine (its ABI fixes it). */
static const char *loader_path(unsigned machine)
{
    return machine == EM_X86_64 ? "/lib64/ld-linux-x86-64.so.2" : "/lib/ld-linux-aarch64.so.1";
}

static unsigned host_machine(void)
{
#ifdef __x86_64__
    return EM_X86_64;
#else
    return EM_AARCH64;
#endif
}

static int run_loader(const char *loader, int fd, int *status)
{
    char *const empty[] = {NULL};
    char *const argv[] = {(char *)(uintptr_t)loader, (char *)(uintptr_t) "--verify",
                          (char *)(uintptr_t) "/proc/self/fd/3", NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int ret = posix_spawn_file_actions_init(&actions);

    if (ret != 0)
        return -ret;
    ret = posix_spawn_file_actions_addclose(&actions, 1); /* there may be no /dev/null */
    ret = ret ?: posix_spawn_file_actions_addclose(&actions, 2);
    ret = ret ?: posix_spawn_file_actions_adddup2(&actions, fd, 3);
    ret = ret ?: posix_spawn(&pid, loader, &actions, NULL, argv, empty);
    posix_spawn_file_actions_destroy(&actions);
    if (ret != 0)
        return -ret;
    while (waitpid(pid, status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

/* Results of rtld.c: 0 a program of this loader, 2 an object without interpreter, 1 an object
 * that it cannot load. */
static int ask_loader(const char *loader, int fd, bool *accepted)
{
    int status = 0, ret = run_loader(loader, fd, &status);

    *accepted = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2);
    return ret;
}

int elf_verify_loader(const struct elf_image *image, int old, int fd, struct gs_err *err)
{
    unsigned machine = image->header.e_machine;
    const char *loader = loader_path(machine), *name = image->source.name;
    bool accepted = false, accepted_old = false;
    struct statvfs mounted;
    int ret;

    if (fstatvfs(fd, &mounted) == 0 && (mounted.f_flag & ST_NOEXEC))
        return 0; /* it accepts nothing on such a mount */
    /* only the system's own loader is run, never a loader that the file names */
    if (machine != host_machine() || access(loader, X_OK) != 0)
        return 0;
    if (image->interpreter != NULL && strcmp(image->interpreter, loader) != 0)
        return 0;
    if (access("/proc/self/fd", X_OK) != 0)
        return gs_err_set(
            err, -EIO,
            "%s: the loader cannot check the new file, because /proc is not mounted; "
            "mount it",
            name);
    ret = ask_loader(loader, fd, &accepted);
    if (ret == 0 && !accepted)
        ret = ask_loader(loader, old, &accepted_old);
    if (ret != 0)
        return gs_err_errno(err, ret, "%s: cannot run %s --verify", name, loader);
    if (accepted)
        return 0;
    if (!accepted_old)
        return gs_err_set(err, -ENOEXEC, "%s: damaged: %s does not accept it", name, loader);
    return gs_err_set(err, -EIO,
                      "%s: %s --verify does not accept the new file; the old file is left "
                      "unchanged. Please report this",
                      name, loader);
}

/* The second reader: libelf reads the new file, and its answers must agree with our own
 * reader and with the plan. This file has the ELF header, the program headers and the
 * sections.
 *
 * Shares no line with the first reader. libelf reads only the parts that it is asked for
 * (ELF_C_READ, no mapping), and each table in its own short session of a few hundred KiB,
 * so the size of the file does not matter (session.c). */

static const char own[] = "gpushare-patch", planned[] = "the plan";

static int compare_both(const struct elf_second *second, const struct elf_kind *kind,
                        size_t index, const void *theirs, const void *ours, const void *plan,
                        struct gs_err *err)
{
    return elf_second_compare(second, kind, index, theirs, ours, own, err)
               ?: elf_second_compare(second, kind, index, theirs, plan, planned, err);
}

static int check_header(const struct elf_second *second, Elf *elf, struct gs_err *err)
{
    const struct elf_plan *plan = second->plan;
    Elf64_Ehdr wanted = plan->image->header;
    GElf_Ehdr header;
    size_t segments, sections, names;

    if (gelf_getehdr(elf, &header) == NULL || elf_getphdrnum(elf, &segments) != 0 ||
        elf_getshdrnum(elf, &sections) != 0 || elf_getshdrstrndx(elf, &names) != 0)
        return elf_second_fail(second, "the ELF header", err);
    wanted.e_phnum = (Elf64_Half)plan->slot.count;
    if (plan->slot.way == ELF_SLOT_END)
        wanted.e_phoff = plan->tail.table.offset;
    if (plan->sections != NULL) {
        wanted.e_shoff = plan->tail.sections_at;
        wanted.e_shnum = (Elf64_Half)plan->section_count;
    }
    if (compare_both(second, &elf_kind_header, 0, &header, &second->new->header, &wanted, err))
        return -EIO;
    header.e_phnum = (Elf64_Half)segments; /* libelf's counts, not the stored counts */
    header.e_shnum = (Elf64_Half)sections;
    header.e_shstrndx = (Elf64_Half)names;
    return compare_both(second, &elf_kind_header, 0, &header, &second->new->header, &wanted,
                        err);
}

/* The program header that the plan wants. */
static Elf64_Phdr planned_segment(const struct elf_plan *plan, size_t index)
{
    Elf64_Phdr p;

    if (plan->slot.segments != NULL)
        return plan->slot.segments[index];
    p = plan->image->segments[index];
    if (index == plan->slot.added) /* ELF_SLOT_PADDING */
        p.p_filesz = p.p_memsz = plan->tail.marker.offset + plan->tail.marker.size - p.p_offset;
    return p;
}

static int check_segments(struct elf_second *second, Elf *elf, struct gs_err *err)
{
    size_t count = second->plan->slot.count;

    second->segments = calloc(count > 0 ? count : 1, sizeof *second->segments);
    if (second->segments == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", second->plan->image->source.name);
    second->segment_count = count;
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr *p = &second->segments[i];
        Elf64_Phdr wanted = planned_segment(second->plan, i);

        if (gelf_getphdr(elf, (int)i, p) == NULL)
            return elf_second_fail(second, "a program header", err);
        if (p->p_type == PT_LOAD && p->p_filesz == 0 && p->p_memsz == 0)
            p->p_type = PT_NULL; /* so does our reader */
        if (compare_both(second, &elf_kind_segment, i, p, &second->new->segments[i], &wanted,
                         err))
            return -EIO;
    }
    return 0;
}

static int check_sections(const struct elf_second *second, Elf *elf, struct gs_err *err)
{
    const struct elf_image *old = second->plan->image, *new = second->new;
    const struct elf_plan *plan = second->plan;
    const Elf64_Shdr *wanted = plan->sections != NULL ? plan->sections : old->sections;

    for (size_t i = 0; i < new->section_count; i++) {
        Elf_Scn *section = elf_getscn(elf, i);
        const char *theirs, *ours = elf_image_section_name(new, i);
        GElf_Shdr header;

        if (section == NULL || gelf_getshdr(section, &header) == NULL)
            return elf_second_fail(second, "a section header", err);
        if (compare_both(second, &elf_kind_section, i, &header, &new->sections[i], &wanted[i],
                         err))
            return -EIO;
        theirs = elf_strptr(elf, new->header.e_shstrndx, header.sh_name);
        if (theirs == NULL)
            return elf_second_fail(second, "the name of a section", err);
        if (strcmp(theirs, ours) != 0)
            return gs_err_set(
                err, -EIO,
                "%s: section %zu of the new file is %s according to libelf, but %s "
                "according to %s; the old file is left unchanged. Please report this",
                old->source.name, i, theirs, ours, own);
    }
    return 0;
}

int elf_verify_second(const struct elf_plan *plan, const struct elf_image *new, int fd,
                      struct gs_err *err)
{
    struct elf_second second = {.plan = plan, .new = new, .fd = fd};
    Elf *elf = elf_second_begin(&second, err);
    int ret;

    if (elf == NULL)
        return -EIO;
    ret = check_header(&second, elf, err);
    ret = ret ?: check_segments(&second, elf, err);
    ret = ret ?: check_sections(&second, elf, err);
    elf_end(elf);
    ret = ret ?: elf_second_tables(&second, err);
    free(second.segments);
    return ret;
}
