/* SPDX-License-Identifier: Apache-2.0
 *
 * hard.c: a program that looks at itself in every way that a careless rewriter breaks, and then
 * says "right".
 *
 * With -DLIBRARY it is a library with the entry hard_look(); with -DDRIVER it calls driver
 * functions; with -DADDRESS it takes the address of one, which in non-PIE code makes a
 * canonical PLT entry; with -DIFUNC it calls a function that is chosen while it is loaded; with
 * -DPAYLOAD it finds what is appended to its own file, from the front and from the end; with
 * -DZEROS it has constants that are zero in a section of their own, with -DNOTE a note that
 * says where something lies, counted from itself (as crashpad's does); with -DINIT it counts
 * the runs of .init, with -DINIT=2 it also runs it itself, with -DINIT=3 it adds to its code.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef BIG
static char big[1ul << 30];
#else
static char big[70000];
#endif
static __thread int per_thread = 17;
static const char *const relocated[] = {"a", "b", "c"};
static int constructed;
#ifndef NO_DYNAMIC /* static programs have none; patchelf wipes it */
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));
#endif
int cuMemAlloc_v2(uint64_t *address, size_t size);
int cuInit(unsigned flags);

__attribute__((constructor)) static void start(void)
{
    constructed = 5;
}

static int check_notes(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    if (info->dlpi_addr + info->dlpi_phdr[0].p_vaddr == 0 || *(int *)data != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) { /* only the first object: the program */
        const ElfW(Nhdr) *note = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);

        if (info->dlpi_phdr[i].p_type == PT_NOTE && info->dlpi_phdr[i].p_filesz > 0 &&
            (note->n_namesz != 4 || memcmp(note + 1, "GNU", 4) != 0))
            *(int *)data = 2;
    }
    return 1;
}

#ifdef IFUNC
static int return_seventeen(void)
{
    return 17;
}

static int (*choose(void))(void)
{
    return return_seventeen;
}

int chosen(void) __attribute__((ifunc("choose")));
#endif

#ifdef PAYLOAD
/* As an AppImage does it, behind the section headers; and as an archive does it, from the end.
 */
static int check_payload(void)
{
    FILE *self = fopen("/proc/self/exe", "rb");
    char first[8] = "", last[8] = "";
    ElfW(Ehdr) header;

    if (self == NULL || fread(&header, sizeof header, 1, self) != 1 ||
        fseek(self, (long)(header.e_shoff + (size_t)header.e_shentsize * header.e_shnum),
              SEEK_SET) != 0 ||
        fread(first, 7, 1, self) != 1 || fseek(self, -7, SEEK_END) != 0 ||
        fread(last, 7, 1, self) != 1)
        return -1;
    fclose(self);
    return strcmp(first, "PAYLOAD") != 0 || strcmp(last, "PAYLOAD") != 0;
}
#endif

#ifdef ZEROS
static const volatile char zeros[256] __attribute__((section(".zeros"))) = {0};
#endif

#ifdef NOTE
__asm__(".pushsection .note.hard, \"a\", @note\n.balign 4\n.long 5, 4, 1\n.asciz \"hard\"\n"
        ".balign 4\n1: .long noted - 1b\n.popsection\n"
        ".pushsection .data\nnoted: .long 1717\n.popsection");

static int check_relative(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const char *at = (const char *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        const char *end = at + info->dlpi_phdr[i].p_memsz;

        for (; info->dlpi_phdr[i].p_type == PT_NOTE && at + 24 <= end; at += 4)
            if (memcmp(at, "hard", 5) == 0)
                *(int *)data = *(const int *)(at + 8 + *(const int *)(at + 8)) == 1717;
    }
    return 1; /* only the first object: the program */
}
#endif

#ifndef NO_DYNAMIC
/* The table that code reads is the one that the loader has relocated and filled in: with
 * DT_DEBUG a program of System V finds what is loaded. */
static int check_dynamic(void)
{
    const ElfW(Dyn) * theirs;
    struct link_map *map;
    Dl_info info;

    if (dladdr1((void *)_DYNAMIC, &info, (void **)&map, RTLD_DL_LINKMAP) == 0)
        return -1;
    theirs = map->l_ld;
    for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
        const struct r_debug *debug = (const void *)d->d_un.d_ptr;

        while (theirs->d_tag != DT_NULL &&
               (theirs->d_tag != d->d_tag || theirs->d_un.d_val != d->d_un.d_val))
            theirs++;
        if (theirs->d_tag == DT_NULL ||
            (d->d_tag == DT_DEBUG && (debug == NULL || debug->r_map == NULL)))
            return -1;
    }
    return 0;
}
#endif

#ifdef INIT
static int init_runs;
void _init(void) __attribute__((visibility("hidden")));
void __gmon_start__(void); /* what the C library's .init calls where there is one */

void __gmon_start__(void)
{
    Dl_info own, caller;

    if (dladdr(&init_runs, &own) && dladdr(__builtin_return_address(0), &caller) &&
        own.dli_fbase == caller.dli_fbase) /* other libraries' .init finds this one, too */
        init_runs++;
}
#if INIT == 3
__asm__(".pushsection .init\n" /* pop and push keep the alignment of the stack */
#ifdef __x86_64__
        "push %rax\npop %rax\n"
#endif
        ".popsection");
#endif
#endif

static int look_at_self(void)
{
    int tags = 0, notes = 0;
    int (*print)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "puts");
    void *versioned = dlvsym(RTLD_NEXT, "no_such_function", "GLIBC_2.2.5");

#ifdef NO_DYNAMIC
    tags = 7;
#else
    for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++)
        tags |= (d->d_tag == DT_STRTAB ? 1 : 0) | (d->d_tag == DT_SYMTAB ? 2 : 0) |
                (d->d_tag == DT_NEEDED ? 4 : 0);
#endif
#ifndef NO_DYNAMIC
    if (check_dynamic() != 0)
        return 9;
#endif
    dl_iterate_phdr(check_notes, &notes);
    for (size_t i = 0; i < sizeof big; i += 4096)
        if (big[i] != 0)
            return 1;
    big[sizeof big - 1] = 1;
    if (tags != 7 || notes != 0 || per_thread != 17 || constructed != 5 || versioned != NULL ||
        strcmp(relocated[2], "c") != 0 || print == NULL)
        return 2;
#ifdef DRIVER
    uint64_t address = 0;
    if (cuInit(0) != 4242 || cuMemAlloc_v2(&address, 1) != 4242)
        return 3;
#endif
#ifdef ADDRESS
    int (*volatile alloc)(uint64_t *, size_t) = cuMemAlloc_v2;
    uint64_t other = 0;
    if (alloc(&other, 1) != 4242)
        return 4;
#endif
#ifdef IFUNC
    if (chosen() != 17)
        return 5;
#endif
#ifdef PAYLOAD
    if (check_payload() != 0)
        return 6;
#endif
#ifdef ZEROS
    for (size_t i = 0; i < sizeof zeros; i++)
        if (zeros[i] != 0)
            return 7;
#endif
#ifdef NOTE
    int found = 0;
    dl_iterate_phdr(check_relative, &found);
    if (!found)
        return 8;
#endif
#ifdef INIT
#if INIT == 2
    _init();
#endif
    if (init_runs != (INIT == 2) + 1)
        return 10;
#endif
    return print("right") < 0;
}

#ifdef LIBRARY
int hard_look(void);
int hard_look(void)
{
    return look_at_self();
}
#else
int main(void)
{
    return look_at_self();
}
#endif
