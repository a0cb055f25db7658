/* SPDX-License-Identifier: Apache-2.0
 *
 * err.h: one error as functions pass it up: a negative errno, what went wrong, and with which
 * object.
 */
#pragma once

struct gs_err {
    int code;       /* 0, or a negative errno */
    char text[512]; /* names the object and what the user can do; no newline */
#ifndef NDEBUG
    const char *file; /* where it was first filled, for a debugger */
    int line;
#endif
};

/* Fills err (which may be NULL) and returns code, so that `return gs_err_set(err, -EINVAL,
 * ...)` reads well. The first error wins: a filled err is left alone. Never allocates. */
int gs_err_set(struct gs_err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As gs_err_set(), with ": <strerror(-code)>" behind the text. */
int gs_err_errno(struct gs_err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#ifndef NDEBUG
/* Keeps the place of the call; returns err. */
struct gs_err *gs_err_at(struct gs_err *err, const char *file, int line);
#define gs_err_set(err, ...)   gs_err_set(gs_err_at(err, __FILE__, __LINE__), __VA_ARGS__)
#define gs_err_errno(err, ...) gs_err_errno(gs_err_at(err, __FILE__, __LINE__), __VA_ARGS__)
#endif
