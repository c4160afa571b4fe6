#include "cli/command_line.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    (void)argc;
    return command_line_run(argv, environ, stdout, stderr);
}
