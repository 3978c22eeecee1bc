/* What libwirerate_xfrm.c offers to a library that it is compiled into: the plugin of ../strongswan. */
#include <stdbool.h>

/* Has sockets lead to this path, not to that of the environment. To be called before there are any; false if the path is too long. */
__attribute__((visibility("hidden"))) bool wirerate_xfrm_at(const char *path);
