/* SPDX-License-Identifier: Apache-2.0
 *
 * made_tree.h: a folder of a test's own with made-up files of /proc and /sys.
 */
#pragma once

/* The folder, from made_tree_begin() to made_tree_end(). */
extern char made_tree[];

/* For cmocka's set-up and tear-down. */
int made_tree_begin(void **state);
int made_tree_end(void **state);

/* Writes a file, below the folders that it needs; `path` begins with a slash. */
void made_tree_put(const char *path, const char *text);
