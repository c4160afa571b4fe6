#include "fmt/chat_control.h"

#include "base/assert.h"

static const char *const texts[CHAT_CONTROL_COUNT] = {
#define X(name, text) text,
    CHAT_CONTROL_LIST(X)
#undef X
};

const char *chat_control_text(enum chat_control control)
{
    ASSERT(control < CHAT_CONTROL_COUNT);
    return texts[control];
}
