// The smallest test program: tests/vm_bed.rs builds and runs it.
#include <stdio.h>

int main(void)
{
	puts("hello from a test program");
	return 0;
}
