/* SPDX-License-Identifier: Apache-2.0
 *
 * stub_file.c: files that the removal of a package leaves if patched files could not be restored:
 * a stub in the library's place, and a copy of this tool to restore them with. The file `stub`
 * beside the list has the full path of each, one a line. No state; one thread.
 */
#include "rewriter/stub_file.h"
#include "common/fd.h"
#include "rewriter/elf/say.h"
#include "rewriter/output/folder_entry.h"
#include "rewriter/output/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
