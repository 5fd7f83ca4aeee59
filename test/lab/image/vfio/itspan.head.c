/* The span iterator of lib/interval_tree.c, which CONFIG_INTERVAL_TREE_SPAN_ITER puts into the kernel and which
 * iommufd needs; the text of that section of the kernel's file follows. */
#include <linux/interval_tree.h>
#include <linux/compiler.h>
#include <linux/export.h>
#include <linux/module.h>

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("interval tree span iterator");

