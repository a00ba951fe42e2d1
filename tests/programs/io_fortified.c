/* The functions that fortified programs call in place of recv(2), poll(2) and their kind: __read_chk, __recv_chk, __recvfrom_chk, __poll_chk,
 * __ppoll_chk, __pread_chk; the room is known to the compiler, the length is not. More than there is room for ends the program with SIGABRT, as
 * ever. Case B15. (_FORTIFY_SOURCE 3: io_fortified_3.) */
// flags: -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -Wno-stringop-overflow -Wno-attribute-warning -Wno-unused-result
#include "io_fortified.h"
