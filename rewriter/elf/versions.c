/* SPDX-License-Identifier: Apache-2.0
 *
 * versions.c: follows the version tables (LSB "Symbol Versioning") as the loader does.
 *
 * Each entry says how far away the next one is. The loader (glibc, elf/dl-version.c) uses no
 * count, so an entry that leads out of the file makes it read beyond it. No state, any thread.
 */
#include "rewriter/elf/versions.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define NOTHING SIZE_MAX   /* no such field */
#define MAX     (1u << 16) /* entries; their numbers have 15 bits */

/* The fields' places in an entry and in the part that it points to. */
struct layout {
    const char *tag;
    size_t size, name, hangs, next, /* of an entry: bytes, offsets of fields */
        hung_size, hung_name, hung_next;
};

static const struct layout needed = {"DT_VERNEED",
                                     sizeof(Elf64_Verneed),
                                     offsetof(Elf64_Verneed, vn_file),
                                     offsetof(Elf64_Verneed, vn_aux),
                                     offsetof(Elf64_Verneed, vn_next),
                                     sizeof(Elf64_Vernaux),
                                     offsetof(Elf64_Vernaux, vna_name),
                                     offsetof(Elf64_Vernaux, vna_next)};
/* of the names of a definition the loader reads only the first */
static const struct layout defined = {"DT_VERDEF",
                                      sizeof(Elf64_Verdef),
                                      NOTHING,
                                      offsetof(Elf64_Verdef, vd_aux),
                                      offsetof(Elf64_Verdef, vd_next),
                                      sizeof(Elf64_Verdaux),
                                      offsetof(Elf64_Verdaux, vda_name),
                                      NOTHING};

static uint32_t get_field(const uint8_t *entry, size_t field)
{
    uint32_t value = 0;

    if (field != NOTHING)
        memcpy(&value, entry + field, sizeof value);
    return value;
}

/* Reads one entry and looks at its name. */
static int read_entry(const struct elf_image *image, uint64_t address, size_t size, size_t name,
                      uint8_t *entry)
{
    uint64_t offset;

    if (elf_image_offset(image, address, size, &offset) != 0 ||
        elf_source_read(&image->source, offset, entry, size, NULL) != 0 ||
        elf_image_string(image, get_field(entry, name)) == NULL)
        return -ENOEXEC;
    return 0;
}

static int follow_table(const struct elf_image *image, uint64_t address, const struct layout *l)
{
    uint8_t entry[sizeof(Elf64_Verdef)], hung[sizeof(Elf64_Vernaux)]; /* the larger ones */
    unsigned count = 0;

    for (;;) {
        uint64_t at;

        if (read_entry(image, address, l->size, l->name, entry) != 0)
            return -ENOEXEC;
        at = address + get_field(entry, l->hangs);
        for (;;) {
            if (read_entry(image, at, l->hung_size, l->hung_name, hung) != 0 || ++count > MAX)
                return -ENOEXEC;
            if (get_field(hung, l->hung_next) == 0)
                break;
            at += get_field(hung, l->hung_next);
        }
        if (get_field(entry, l->next) == 0)
            return 0;
        address += get_field(entry, l->next);
    }
}

int elf_versions_check(const struct elf_image *image, struct gs_err *err)
{
    const struct layout *bad = NULL;

    if (image->tables.verneed.address != 0 &&
        follow_table(image, image->tables.verneed.address, &needed) != 0)
        bad = &needed;
    else if (image->tables.verdef.address != 0 &&
             follow_table(image, image->tables.verdef.address, &defined) != 0)
        bad = &defined;
    if (bad == NULL)
        return 0;
    return gs_err_set(err, -ENOEXEC, "%s: damaged: an entry of %s points outside the file",
                      image->source.name, bad->tag);
}
