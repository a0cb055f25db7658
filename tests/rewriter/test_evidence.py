#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The evidence by which gpushare-patch sees that a file calls the driver, wherever its compiler has put the texts."""
import json
import sys

sys.dont_write_bytecode = True
import tool
from tool import Case, run

HEAD = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <string.h>\n"
# Each opens the driver and looks up functions; the texts are where the name says.
FOUND = {
    "written-data": 'static char names[][16] = {"libcuda.so.1"};\nint main(void) { void *h = dlopen(names[0], 2); return !dlsym(h, "cuInit"); }',
    "functions-in-data": 'static char names[][16] = {"cuInit", "cuMemAlloc_v2"};\n'
                         'int main(int n, char **v) { void *h = dlopen(v[1], 2); return !dlsym(h, names[n]); }',
    "made-at-run-time": 'int main(void) { char n[32]; sprintf(n, "lib%s.so.%d", "cuda", 1);\n'
                        'void *h = dlopen(n, 2); return !dlsym(h, "cuInit"); }',
    "by-letters": 'int main(void) { volatile char n[32]; const char *p = "1.os.aducbil"; int i = strlen(p);\n'
                  'char *q = (char *)n; while (i > 0) *q++ = p[--i]; *q = 0; return !dlsym(dlopen((char *)n, 2), "cuDeviceGet"); }',
    "dlvsym": 'int main(int n, char **v) { return !dlvsym(dlopen(v[1], 2), "cuCtxCreate_v2", v[2]); }',
    "no-borders": 'asm(".section .rodata\\nnames: .ascii \\"xcuInitcuMemAlloc_v2cuLaunchKernelx\\"\\n.text");\nextern char names[];\n'
                  'int main(int n, char **v) { char s[9] = ""; memcpy(s, names + 1, 6); return !dlsym(dlopen(v[1], 2), s); }',
    "runtime": 'int main(void) { return !dlsym(dlopen("libcudart.so.13", 2), "cudaMalloc"); }',
}
# None of these calls the driver.
OTHER = {
    "controller": 'int main(int n, char **v) { return !dlsym(dlopen(v[1], 2), "mcuInit"); }',
    "longer": 'int main(int n, char **v) { return !dlsym(dlopen(v[1], 2), "cuInitialise"); }',
    "no-look-up": 'int main(void) { return puts("cuMemAlloc_v2") + puts("cuInit"); }',
}


class Evidence(Case):
    def look(self, name, source, *flags):
        path = self.build(name, HEAD + source, "-fno-builtin", *flags)
        status, out, err = run(*self.runtime, "--dry-run", path)
        report = json.loads(run(*self.runtime, "--print", "--json", path)[1])
        self.assertEqual(report["cuda"], status == 0, (report, err))
        return status, out + err

    def test_driver_is_seen_wherever_its_names_are(self):
        for name, source in FOUND.items():
            for flags in ((), ("-O2",), ("-O2", "-s"), ("-shared", "-fPIC", "-O2")):
                self.assertEqual(self.look(name, source, *flags)[0], 0, (name, flags))

    def test_stripped_of_section_headers(self):
        path = self.build("plain", HEAD + FOUND["functions-in-data"])
        data = bytearray(open(path, "rb").read())
        data[0x28:0x30] = bytes(8)  # e_shoff
        data[0x3a:0x40] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
        open(path, "wb").write(data)
        self.assertEqual(run(*self.runtime, "--dry-run", path)[0], 0)

    def test_similar_names_are_no_evidence(self):
        for name, source in OTHER.items():
            for flags in (("-O2",), ("-shared", "-fPIC")):
                status, said = self.look(name, source, *flags)
                self.assertEqual((status, "nothing to do" in said), (4, True), (name, flags, said))


if __name__ == "__main__":
    tool.main()
