/* As io_every, with the names that programs for large files import: fcntl64, sendfile64, pread64, lseek64, fstat64, preadv64v2 … Case B14. */
// flags: -D_FILE_OFFSET_BITS=64
#include "io_every.h"
