#include "cli/commands.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    (void)argc;
    return commands_run(argv, environ, stdout, stderr);
}
