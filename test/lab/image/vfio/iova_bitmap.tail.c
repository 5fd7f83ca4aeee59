
/* Part of a larger module in the kernel's own build; a module alone here, which must say its licence. */
#include <linux/module.h>
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("IOVA bitmap");
