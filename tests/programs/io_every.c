/* Every function of libc that takes a socket's descriptor, on a connection: its result and errno. Case B14. (With the names of large files:
 * io_every_64.) */
#include "io_every.h"
