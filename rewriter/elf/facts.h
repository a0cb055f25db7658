/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.h: how an image uses CUDA: the imports that can be routed, and traces of the CUDA
 * runtime.
 */
#pragma once

#include "rewriter/elf/image.h"

/* An undefined dynamic symbol whose name is in the wrap list. */
struct elf_import {
    uint32_t index;  /* in the dynamic symbol table */
    uint32_t name;   /* offset in the dynamic string table */
    bool keeps_name; /* a program's that is in the hash table under its name: it has an address
                        (a canonical PLT entry), or the linker was mold */
};

struct elf_facts {
    struct elf_import *imports;
    size_t import_count;
    const char *driver_import;  /* first cu* function it imports, or NULL */
    const char *runtime_import; /* first cuda* function it imports, or NULL */
    bool imports_dlsym;         /* dlsym or dlvsym */
    bool imports_dlopen;        /* may load with RTLD_DEEPBIND, which no file shows */
    bool starts_programs;       /* imports a function of the exec family; not PyInstaller's
                                   loader, which starts itself again */
    bool is_nuitka;             /* made by Nuitka --onefile: the start, or the program */
    bool imports_dlmopen;       /* may load into another namespace */
    const char *needed;         /* first CUDA library in DT_NEEDED, or NULL */
    const char *cudart_shared;  /* libcudart.so.N in DT_NEEDED, or NULL */
    bool is_cudart;             /* it is libcudart itself */
    bool cudart_static;         /* a static cudart is inside */
    int newest_api;             /* CUDA version (13000) of its newest driver name; 0: none */
    bool device_code;           /* .nv_fatbin */
    bool names_libcuda;         /* holds the string libcuda.so */
    bool names_cudart;          /* holds the string libcudart.so */
    const char *looked_up;      /* first driver function that its data names, or NULL */
    bool looks_up_enough;       /* the names are no chance */
    char **libraries;           /* names of libraries in its data: dlopen may get them */
    size_t library_count;
};

/* Reads symbols and data of the image. Unless `all` is set, stops when it is certain
 * that the file uses CUDA (then some fields may be unset). 0, or a negative errno with err
 * filled; after an error facts is empty. Strings point into the image. */
int elf_facts_read(struct elf_facts *facts, const struct elf_image *image, bool all,
                   struct gs_err *err);
void elf_facts_deinit(struct elf_facts *facts);

/* Whether a file that is no image (a static program) calls the driver: its bytes name functions
 * of the driver, or hold the CUDA runtime. */
bool elf_facts_in_bytes(const struct elf_source *source);

/* Whether a library of that name, with or without its folder, belongs to CUDA or needs it. */
bool elf_facts_is_cuda_library(const char *name);

/* Whether any of these facts shows that the file uses CUDA. */
bool elf_facts_cuda(const struct elf_facts *facts);

/* The fact that shows it best, as a clause: "imports cudaMalloc". */
void elf_facts_why(const struct elf_facts *facts, char *text, size_t size);

#define ELF_WRAP_PREFIX "__wrap_"

/* True for dlsym, dlvsym and driver functions that are not passed through: a reference to them
 * becomes __wrap_<name>. */
int elf_name_is_wrapped(const char *name);
/* The CUDA version (1000 * major + 10 * minor) a driver function appeared in; 0 if the table
 * does not have the name. */
int elf_name_driver_since(const char *name);
/* A name of the CUDA runtime API or of its compiler support: cudaMalloc,
 * __cudaRegisterFatBinary, ... */
int elf_name_is_runtime_api(const char *name);
/* A number that changes whenever the wrap list does: files patched with another list are patched
 * again. */
uint32_t elf_names_fingerprint(void);
