/* replay.c -- `replay LOG`: make every decision of a monitor.log again. Exit 1 if one differs. */
#include <stdio.h>
#include <string.h>

#include "governor/replay.h"

int main(int argc, char **argv)
{
    static char line[64 * 1024];
    FILE *file = argc == 2 ? fopen(argv[1], "re") : NULL;
    unsigned same = 0, differs = 0;

    if (!file) {
        fprintf(stderr, "usage: replay LOG\n");
        return 2;
    }
    while (fgets(line, sizeof(line), file)) {
        size_t length = strcspn(line, "\n");
        struct fb_decision made;

        switch (fb_replay_line(line, length, &made)) {
        case FB_REPLAY_SAME:
            same++;
            break;
        case FB_REPLAY_DIFFERS:
            differs++;
            printf("differs: %.*s\n", (int)length, line);
            break;
        case FB_REPLAY_OTHER:
            break;
        }
    }
    fclose(file);
    printf("%u decisions are the same, %u differ\n", same, differs);
    return differs ? 1 : 0;
}
