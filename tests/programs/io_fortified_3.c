/* As io_fortified, with _FORTIFY_SOURCE 3, where the compiler knows the room of what malloc gave, and with the names of large files (pread64 …).
 * Cases B14 and B15. */
// flags: -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -D_FILE_OFFSET_BITS=64 -Wno-stringop-overflow -Wno-attribute-warning -Wno-unused-result
#include "io_fortified.h"
