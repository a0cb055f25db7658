/* SPDX-License-Identifier: Apache-2.0
 *
 * note.c: reads and writes marker and undo note.
 *
 * The marker is found through the program headers alone, so that files without section headers
 * work as well. A note is input like any other: offsets and lengths are checked before use. No
 * state, any thread.
 */
#include "rewriter/elf/note.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_UNDO     (512ull << 20) /* bytes */
#define MAX_SEGMENTS 512

static const uint8_t zeros[ELF_UNDO_ZEROS_MAX];

/* Finds the marker's trailer, which ends the file part of a PT_LOAD: of the last one or, in a
 * file that could not grow, of another. */
static bool find_trailer(struct elf_note *note, const struct elf_source *source,
                         struct elf_marker_trailer *trailer)
{
    Elf64_Ehdr header;

    if (elf_source_read(source, 0, &header, sizeof header, NULL) != 0 ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > MAX_SEGMENTS)
        return false;
    for (size_t i = header.e_phnum; i-- > 0;) {
        Elf64_Phdr *p = &note->segment;

        if (header.e_phoff > source->size ||
            elf_source_read(source, header.e_phoff + i * sizeof *p, p, sizeof *p, NULL) != 0)
            return false;
        if (p->p_type != PT_LOAD || p->p_filesz > source->size ||
            p->p_offset > source->size - p->p_filesz || p->p_filesz < sizeof *trailer)
            continue;
        if (elf_source_read(source, p->p_offset + p->p_filesz - sizeof *trailer, trailer,
                            sizeof *trailer, NULL) == 0 &&
            memcmp(trailer->magic, ELF_MARKER_MAGIC, sizeof trailer->magic) == 0)
            return true;
    }
    return false;
}

static int lose_note(const struct elf_source *source, const char *why, struct gs_err *err)
{
    return elf_refuse(
        source->name, err,
        "was patched by gpushare-patch, but its undo note is %s (was the file changed after "
        "that?); install the file again from its package or build it again",
        why);
}

static int decode_copies(struct elf_note *note, const struct elf_source *source)
{
    if (note->head.copies > ELF_COPIES_MAX)
        return lose_note(source, "damaged (copies)", &note->lost);
    gs_each (copy, note->copies, note->head.copies) {
        if (copy->at > note->segment.p_filesz ||
            copy->length > note->segment.p_filesz - copy->at ||
            copy->offset > note->head.image_end ||
            copy->length > note->head.image_end - copy->offset)
            return lose_note(source, "damaged (a copy)", &note->lost);
    }
    return 0;
}

static int decode_changes(struct elf_note *note, const struct elf_source *source,
                          const uint8_t *bytes, uint64_t size)
{
    uint64_t at = 0, last = 0, original = note->head.original_size;
    uint32_t count = note->head.count;
    struct gs_err *err = &note->lost;

    if (count > size / 16)
        return lose_note(source, "damaged (count)", err);
    note->undo = calloc(count > 0 ? count : 1, sizeof *note->undo);
    if (note->undo == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", source->name);
    gs_each (change, note->undo, count) {
        uint64_t padded;
        uint32_t flags;

        if (size - at < 16)
            return lose_note(source, "cut off", err);
        memcpy(&change->offset, bytes + at, 8);
        memcpy(&change->length, bytes + at + 8, 4);
        memcpy(&flags, bytes + at + 12, 4);
        if (flags > ELF_UNDO_ZEROS || (flags != 0 && change->length > sizeof zeros))
            return lose_note(source, "damaged (flags)", err);
        change->bytes = flags != 0 ? zeros : bytes + at + 16;
        padded = flags != 0 ? 0 : ((uint64_t)change->length + 7) / 8 * 8;
        if (padded > size - at - 16 || change->offset < last || change->offset > original ||
            change->length > original - change->offset)
            return lose_note(source, "damaged (a range)", err);
        last = change->offset + change->length;
        at += 16 + padded;
    }
    note->undo_count = count;
    return 0;
}

static bool is_known(const char magic[sizeof ELF_UNDO_MAGIC])
{
    return memcmp(magic, ELF_UNDO_MAGIC, sizeof ELF_UNDO_MAGIC) == 0;
}

/* `at`: where the undo note is now. */
static int read_undo(struct elf_note *note, const struct elf_source *source,
                     const struct elf_marker_trailer *trailer, uint64_t at)
{
    struct elf_undo_head *head = &note->head;
    uint64_t copies;

    note->undo_bytes = elf_source_load(source, at, trailer->undo_size, &note->lost);
    if (note->undo_bytes == NULL)
        return -ENOEXEC;
    memcpy(head, note->undo_bytes, sizeof *head);
    copies = head->copies * sizeof note->copies[0];
    if (!is_known(head->magic))
        return lose_note(source, "gone", &note->lost);
    note->moved = trailer->undo_offset != at;
    note->relaid = note->moved || head->patched_size != source->size;
    if (head->image_end > head->original_size || head->image_end < sizeof(Elf64_Ehdr) ||
        (!note->relaid && head->original_size > source->size))
        return lose_note(source, "damaged (size)", &note->lost);
    if (copies > trailer->undo_size - sizeof *head)
        return lose_note(source, "damaged (copies)", &note->lost);
    memcpy(note->copies, note->undo_bytes + sizeof *head,
           copies < sizeof note->copies ? copies : sizeof note->copies);
    if (decode_copies(note, source) != 0)
        return -ENOEXEC;
    return decode_changes(note, source, note->undo_bytes + sizeof *head + copies,
                          trailer->undo_size - sizeof *head - copies);
}

static int read_note(struct elf_note *note, const struct elf_source *source,
                     const struct elf_marker_trailer *trailer)
{
    uint64_t room = note->segment.p_filesz - sizeof *trailer;
    uint64_t end = note->segment.p_offset + room;
    char magic[sizeof ELF_UNDO_MAGIC];
    /* whether the undo note has another format than ours: its place was written in the same way */
    bool foreign =
        trailer->undo_offset < source->size &&
        elf_source_read(source, trailer->undo_offset, magic, sizeof magic, NULL) == 0 &&
        memcmp(magic, ELF_UNDO_MAGIC, sizeof magic - 2) == 0 && !is_known(magic);
    /* the first formats had the undo note behind the segment, not in it */
    uint64_t undo = foreign && trailer->undo_offset >= end ? 0 : trailer->undo_size;
    int ret;

    if (trailer->text_size >= sizeof note->text || trailer->text_size > room ||
        undo > room - trailer->text_size)
        return lose_note(source, "damaged (marker)", &note->lost);
    ret = elf_source_read(source, end - undo - trailer->text_size, note->text,
                          (size_t)trailer->text_size, &note->lost);
    if (ret != 0)
        return ret;
    if (foreign)
        return elf_refuse(source->name, &note->lost,
                          "was patched by another version of gpushare-patch, whose undo notes "
                          "this version cannot read; restore it with that version, or install "
                          "the file again from its package or build it again");
    if (undo > MAX_UNDO || undo < sizeof note->head)
        return lose_note(source, "damaged (size)", &note->lost);
    return read_undo(note, source, trailer, end - undo);
}

enum elf_note_state elf_note_find(struct elf_note *note, const struct elf_source *source)
{
    struct elf_marker_trailer trailer;

    memset(note, 0, sizeof *note);
    if (!find_trailer(note, source, &trailer))
        return ELF_NOTE_NONE;
    if (read_note(note, source, &trailer) != 0)
        elf_note_deinit(note);
    return ELF_NOTE_FOUND;
}

struct elf_source elf_note_undone(const struct elf_note *note, const struct elf_source *patched)
{
    struct elf_source original = *patched;

    original.size = note->head.original_size;
    original.undo = note->undo;
    original.undo_count = note->undo_count;
    return original;
}

void elf_note_deinit(struct elf_note *note)
{
    free(note->undo);
    free(note->undo_bytes);
    note->undo = NULL;
    note->undo_bytes = NULL;
    note->undo_count = 0;
}

void elf_note_value(const char *text, const char *key, char *buffer, size_t size)
{
    size_t key_length = strlen(key);

    buffer[0] = '\0';
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");

        if (length > key_length && strncmp(line, key, key_length) == 0 &&
            line[key_length] == '=') {
            size_t n = length - key_length - 1;

            if (n >= size)
                return;
            memcpy(buffer, line + key_length + 1, n);
            buffer[n] = '\0';
            return;
        }
        line += length + (line[length] == '\n');
    }
}

static size_t stored_size(const struct elf_change *change)
{
    return change->bytes != NULL ? ((size_t)change->length + 7) / 8 * 8 : 0;
}

uint8_t *elf_undo_encode(const struct elf_undo_head *head, const struct elf_undo_copy *copies,
                         const struct elf_change *changes, size_t count, uint64_t *size)
{
    struct elf_undo_head final = *head;
    size_t copied = head->copies * sizeof *copies;
    uint8_t *bytes, *at;

    *size = sizeof final + copied;
    for (size_t i = 0; i < count; i++)
        *size += 16 + stored_size(&changes[i]);
    bytes = calloc(1, (size_t)*size);
    if (bytes == NULL)
        return NULL;
    memcpy(final.magic, ELF_UNDO_MAGIC, sizeof final.magic);
    final.count = (uint32_t)count;
    memcpy(bytes, &final, sizeof final);
    if (copied > 0)
        memcpy(bytes + sizeof final, copies, copied);
    at = bytes + sizeof final + copied;
    for (size_t i = 0; i < count; i++) {
        memcpy(at, &changes[i].offset, 8);
        memcpy(at + 8, &changes[i].length, 4);
        if (changes[i].bytes != NULL)
            memcpy(at + 16, changes[i].bytes, changes[i].length);
        else
            memcpy(at + 12, &(uint32_t){ELF_UNDO_ZEROS}, 4);
        at += 16 + stored_size(&changes[i]);
    }
    return bytes;
}
