/* See surround_hooks. */
// flags: -shared -fPIC -fno-builtin
#define MALLOC
#include "surround_hooks.c"
