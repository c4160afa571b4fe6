/* Every field of every endpoint that makes an answer: right, null, of a wrong type, out of its range and at its ends,
 * unknown. docs/http-conformance.md says for each field which lines here are about it.
 *
 * A line is a path, members that are added to a body that is fine (the last of two equal ones counts), and what becomes
 * of it. Apostrophes stand for quotation marks. */
#include "support/check.h"
#include "support/demo_server.h"
#include "support/json_answer.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define MESSAGES "/v1/messages"
#define COUNT "/v1/messages/count_tokens"
#define RESPONSES "/v1/responses"

#define F(name) "{'type':'function','function':{'name':'" name "'}}"
#define R(name) "{'type':'function','name':'" name "'}"
#define M(name) "{'name':'" name "','input_schema':{'type':'object'}}"
#define USER(content) "'messages':[{'role':'user','content':" content "}]"
#define ASK USER("'What is 17 plus 25?'") ","
#define SCHEMA "{'type':'json_schema','json_schema':{'name':'n','schema':{'type':'null'}}}"
#define FLAT_SCHEMA "{'type':'json_schema','name':'n','schema':{'type':'null'}}"

enum { JSON_BYTES = 4096 };

static struct demo_server demo, strict;

static int start(void **state)
{
    (void)state;
    demo_server_init(&demo);
    demo_server_start(&demo);
    demo_server_init(&strict);
    strict.settings.strict_fields = true;
    strict.settings.strict_model = true;
    demo_server_start(&strict);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    demo_server_stop(&demo);
    demo_server_stop(&strict);
    return 0;
}

static const char *base_of(const char *path)
{
    if (strcmp(path, CHAT) == 0) return "'max_tokens':2,'messages':[{'role':'user','content':'hi'}]";
    if (strcmp(path, TEXT) == 0) return "'max_tokens':2,'prompt':'The weir'";
    if (strcmp(path, MESSAGES) == 0) return "'max_tokens':2,'messages':[{'role':'user','content':'hi'}]";
    if (strcmp(path, COUNT) == 0) return "'messages':[{'role':'user','content':'hi'}]";
    if (strcmp(path, RESPONSES) == 0) return "'max_output_tokens':2,'input':'hi'";
    return "";
}

static void quote(char out[JSON_BYTES], const char *path, const char *members)
{
    const char *base = base_of(path);
    int n = snprintf(out, JSON_BYTES, "{%s%s%s}", base, *base && *members ? "," : "", members);
    assert_in_range(n, 2, JSON_BYTES - 1);
    for (char *c = out; *c; c++)
        if (*c == '\'') *c = '"';
}

struct line {
    const char *path, *members;
    const char *code;  /* of the refusal; NULL: 200 */
    const char *param; /* the field that it names; of Anthropic's, what the message begins with. Or, with 200: a JSON
                          pointer into the answer, and what is there, with a blank between them */
};

static void check_refusal(const struct line *l, const char *json, struct json_object *answer)
{
    bool anthropic = strncmp(l->path, MESSAGES, strlen(MESSAGES)) == 0;
    const char *message = json_text_at(answer, "/error/message");
    if (anthropic) {
        /* The family has no codes; its types are the statuses' names. */
        assert_string_equal(json_text_at(answer, "/type"), "error");
        assert_string_equal(json_text_at(answer, "/error/type"), "invalid_request_error");
        assert_true(strncmp(json_text_at(answer, "/request_id"), "req_", 4) == 0);
        if (l->param && strncmp(message, l->param, strlen(l->param)) != 0)
            fail_msg("%s %s: %s, wanted %s", l->path, json, message, l->param);
        return;
    }
    assert_string_equal(json_text_at(answer, "/error/type"), "invalid_request_error");
    if (strcmp(json_text_at(answer, "/error/code"), l->code) != 0)
        fail_msg("%s %s: %s, wanted %s", l->path, json, json_object_to_json_string(answer), l->code);
    if (l->param && strcmp(json_text_at(answer, "/error/param"), l->param) != 0)
        fail_msg("%s %s: %s, wanted %s", l->path, json, json_object_to_json_string(answer), l->param);
}

static void check_answer(const struct line *l, const char *json, struct json_object *answer)
{
    char pointer[128];
    const char *blank = l->param ? strchr(l->param, ' ') : NULL;
    if (!blank) return;
    snprintf(pointer, sizeof pointer, "%.*s", (int)(blank - l->param), l->param);
    struct json_object *found = json_at(answer, pointer);
    const char *text = json_object_is_type(found, json_type_string)
                           ? json_object_get_string(found)
                           : json_object_to_json_string_ext(found, JSON_C_TO_STRING_PLAIN);
    if (strcmp(text, blank + 1) != 0) fail_msg("%s %s: %s is %s", l->path, json, l->param, text);
}

static void walk(const struct demo_server *server, const struct line *lines, size_t n)
{
    size_t n_refused = 0;
    for (size_t i = 0; i < n; i++) {
        const struct line *l = &lines[i];
        char json[JSON_BYTES];
        quote(json, l->path, l->members);
        struct json_object *answer = json_ask(server->port, l->path, json, NULL, l->code ? 400 : 200);
        if (l->code)
            check_refusal(l, json, answer);
        else
            check_answer(l, json, answer);
        n_refused += l->code != NULL;
        json_object_put(answer);
    }
    print_message("%zu lines, %zu of them refused\n", n, n_refused);
}

#define WALK(server, lines) walk(&(server), lines, sizeof(lines) / sizeof *(lines))

/* The body by itself is good on every path, or the refusals below would show nothing. */
static void bodies_are_good_by_themselves(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {CHAT, "", NULL, "/object chat.completion"}, {TEXT, "", NULL, "/object text_completion"},
        {MESSAGES, "", NULL, "/type message"},       {COUNT, "", NULL, "/x null"},
        {RESPONSES, "", NULL, "/object response"},
    };
    WALK(demo, lines);
    static const struct line strictly[] = {
        {CHAT, "'model':'demo'", NULL, "/model demo"},
        {TEXT, "'model':'demo'", NULL, "/model demo"},
        {MESSAGES, "'model':'demo'", NULL, "/model demo"},
        {RESPONSES, "'model':'demo'", NULL, "/model demo"},
    };
    WALK(strict, strictly);
}

/* --- what all endpoints read alike --- */

static void common_fields(void **state)
{
    (void)state;
    static const char *const paths[] = {CHAT, TEXT, MESSAGES, RESPONSES};
    static const struct line lines[] = {
        {"", "'model':'gpt-9'", NULL, "/model demo"},
        {"", "'model':''", NULL, "/model demo"},
        {"", "'model':null", NULL, "/model demo"},
        {"", "'model':5", "invalid_type", "model"},
        {"", "'stream':null", NULL, NULL},
        {"", "'stream':false", NULL, NULL},
        {"", "'stream':'true'", "invalid_type", "stream"},
        {"", "'stream':1", "invalid_type", "stream"},
        {"", "'n':1", NULL, NULL},
        {"", "'n':null", NULL, NULL},
        {"", "'n':2", "unsupported_parameter", "n"},
        {"", "'n':0", "unsupported_parameter", "n"},
        {"", "'n':'1'", "invalid_type", "n"},
        {"", "'best_of':1", NULL, NULL},
        {"", "'best_of':3", "unsupported_parameter", "best_of"},
        {"", "'temperature':0", NULL, NULL},
        {"", "'temperature':2", NULL, NULL},
        {"", "'temperature':null", NULL, NULL},
        {"", "'temperature':2.01", "invalid_value", "temperature"},
        {"", "'temperature':-0.01", "invalid_value", "temperature"},
        {"", "'temperature':true", "invalid_type", "temperature"},
        {"", "'temperature':'0'", "invalid_type", "temperature"},
        {"", "'top_p':0", NULL, NULL},
        {"", "'top_p':1", NULL, NULL},
        {"", "'top_p':1.1", "invalid_value", "top_p"},
        {"", "'top_p':[]", "invalid_type", "top_p"},
        {"", "'top_k':-1", NULL, NULL},
        {"", "'top_k':0", NULL, NULL},
        {"", "'top_k':-2", "invalid_value", "top_k"},
        {"", "'top_k':1000000", "invalid_value", "top_k"},
        {"", "'top_k':1.5", "invalid_type", "top_k"},
        {"", "'min_p':0.5", NULL, NULL},
        {"", "'min_p':1.5", "invalid_value", "min_p"},
        {"", "'repetition_penalty':2", NULL, NULL},
        {"", "'repetition_penalty':0", "invalid_value", "repetition_penalty"},
        {"", "'repeat_penalty':2.5", "invalid_value", "repeat_penalty"},
        {"", "'repetition_context_size':-1", NULL, NULL},
        {"", "'repeat_last_n':4096", NULL, NULL},
        {"", "'repeat_last_n':4097", "invalid_value", "repeat_last_n"},
        {"", "'presence_penalty':-2", NULL, NULL},
        {"", "'presence_penalty':2.1", "invalid_value", "presence_penalty"},
        {"", "'frequency_penalty':2", NULL, NULL},
        {"", "'frequency_penalty':-2.1", "invalid_value", "frequency_penalty"},
        {"", "'frequency_penalty':{}", "invalid_type", "frequency_penalty"},
        {"", "'logit_bias':{}", NULL, NULL},
        {"", "'logit_bias':{'1':-100,'2':100}", NULL, NULL},
        {"", "'logit_bias':{'1':101}", "invalid_value", "logit_bias"},
        {"", "'logit_bias':{'x':1}", "invalid_value", "logit_bias"},
        {"", "'logit_bias':{'999999':1}", "invalid_value", "logit_bias"},
        {"", "'logit_bias':{'1':'1'}", "invalid_type", "logit_bias"},
        {"", "'logit_bias':[]", "invalid_type", "logit_bias"},
        {"", "'seed':-5", NULL, NULL},
        {"", "'seed':9223372036854775807", NULL, NULL},
        {"", "'seed':9223372036854775808", "invalid_type", "seed"},
        {"", "'seed':1.5", "invalid_type", "seed"},
        {"", "'seed':'1'", "invalid_type", "seed"},
        {"", "'min_tokens':0", NULL, NULL},
        {"", "'min_tokens':-1", "invalid_value", "min_tokens"},
        {"", "'min_tokens':3", "invalid_value", "min_tokens"},
        {"", "'ignore_eos':true", NULL, NULL},
        {"", "'ignore_eos':1", "invalid_type", "ignore_eos"},
        {"", "'stop':null", NULL, NULL},
        {"", "'stop':'x'", NULL, NULL},
        {"", "'stop':['x','y']", NULL, NULL},
        {"", "'stop':[]", NULL, NULL},
        {"", "'stop':['']", "invalid_value", "stop"},
        {"", "'stop':''", "invalid_value", "stop"},
        {"", "'stop':[1]", "invalid_type", "stop"},
        {"", "'stop':{}", "invalid_type", "stop"},
        {"", "'stop':['1','2','3','4','5','6','7','8','9','10','11','12','13','14','15','16']", NULL, NULL},
        {"", "'stop':['1','2','3','4','5','6','7','8','9','10','11','12','13','14','15','16','17']", "invalid_value",
         "stop"},
        {"", "'stop_token_ids':[1]", NULL, NULL},
        {"", "'stop_token_ids':['1']", "invalid_type", "stop_token_ids"},
        {"", "'stop_token_ids':[999999]", "invalid_value", "stop_token_ids"},
        {"", "'typical_p':1,'top_a':0,'mirostat':0,'xtc_probability':0,'dry_multiplier':0,'mirostat_tau':5", NULL,
         NULL},
        {"", "'typical_p':0.9", "unsupported_parameter", "typical_p"},
        {"", "'top_a':0.1", "unsupported_parameter", "top_a"},
        {"", "'tfs_z':0.9", "unsupported_parameter", "tfs_z"},
        {"", "'mirostat':1", "unsupported_parameter", "mirostat"},
        {"", "'xtc_probability':0.5", "unsupported_parameter", "xtc_probability"},
        {"", "'dry_multiplier':1", "unsupported_parameter", "dry_multiplier"},
        {"",
         "'user':'u','metadata':{'a':'b'},'service_tier':'auto','prompt_cache_key':'k','safety_identifier':'s',"
         "'cache_control':{'type':'ephemeral'},'prediction':{'type':'content','content':'x'},"
         "'client_metadata':{},'prompt_cache_retention':'24h','nobody_knows_this':[1,2,3]",
         NULL, NULL},
        /* Constraints, in the forms that have no place of their own. */
        {"", "'guided_json':{'type':'null'}", NULL, NULL},
        {"", "'guided_json':'{}'", NULL, NULL},
        {"", "'guided_json':'{'", "invalid_schema", "guided_json"},
        {"", "'guided_json':5", "invalid_schema", "guided_json"},
        {"", "'guided_regex':'a+'", NULL, NULL},
        {"", "'guided_regex':'('", "invalid_schema", "guided_regex"},
        {"", "'guided_regex':5", "invalid_type", "guided_regex"},
        {"", "'guided_choice':['x','y']", NULL, NULL},
        {"", "'guided_choice':[]", "invalid_schema", "guided_choice"},
        {"", "'guided_choice':[1]", "invalid_schema", "guided_choice"},
        {"", "'guided_choice':'x'", "invalid_type", "guided_choice"},
        {"", "'guided_grammar':'root ::= [a-z]'", NULL, NULL},
        {"", "'grammar':'root ::= other'", "invalid_schema", "grammar"},
        {"", "'grammar':null,'guided_json':null,'structured_outputs':null", NULL, NULL},
        {"", "'structural_tag':{}", "unsupported_parameter", "structural_tag"},
        {"", "'structured_outputs':{'regex':'a+'}", NULL, NULL},
        {"", "'structured_outputs':{'choice':['x']}", NULL, NULL},
        {"", "'structured_outputs':{'grammar':'root ::= [a-z]'}", NULL, NULL},
        {"", "'structured_outputs':{'json_object':true}", NULL, NULL},
        {"", "'structured_outputs':{'json_object':false}", NULL, NULL},
        {"", "'structured_outputs':{'json_object':1}", "invalid_type", "structured_outputs"},
        {"", "'structured_outputs':{'type':'null'}", NULL, NULL},
        {"", "'structured_outputs':{}", NULL, NULL},
        {"", "'structured_outputs':[]", "invalid_type", "structured_outputs"},
        {"", "'structured_outputs':{'regex':'a','choice':['b']}", "conflicting_constraints", "structured_outputs"},
        {"", "'structured_outputs':{'structural_tag':{}}", "unsupported_parameter", "structured_outputs"},
        {"", "'structured_outputs':{'json':{'type':'array'},'any_whitespace':false}", NULL, NULL},
        {"", "'structured_outputs':{'json':{'type':'array'},'any_whitespace':0}", "invalid_type", "structured_outputs"},
        {"", "'structured_outputs':{'json':{'type':'array'},'whitespace_pattern':' ?'}", NULL, NULL},
        {"", "'structured_outputs':{'json':{'type':'array'},'whitespace_pattern':1}", "invalid_type",
         "structured_outputs"},
        {"", "'structured_outputs':{'json':{'type':'array'},'whitespace_pattern':'x*'}", "invalid_schema",
         "structured_outputs"},
        {"", "'structured_outputs':{'json':{},'any_whitespace':false,'whitespace_pattern':' '}",
         "conflicting_constraints", "structured_outputs"},
        {"", "'guided_json':{},'guided_whitespace_pattern':'[ ]?'", NULL, NULL},
        {"", "'guided_regex':'a','guided_choice':['b']", "conflicting_constraints", "guided_choice"},
        {"", "'guided_json':{'not':{}}", "unsupported_schema", "guided_json"},
    };
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
            struct line l = lines[i];
            l.path = paths[p];
            if (p > 0 && i % 4 != p && !l.code) continue; /* answers take time; refusals do not */
            walk(&demo, &l, 1);
        }
}

/* Words that stand for failures of the server, in what a refusal quotes. */
static void words_of_clients_choose_no_status(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {CHAT, "'logit_bias':{'numerical_error':1}", "invalid_value", "logit_bias"},
        {CHAT, "'reasoning_effort':'engine_unavailable'", "invalid_value", "reasoning_effort"},
        {CHAT, "'messages':[{'role':'grammar_limit','content':'x'}]", "invalid_value", "messages[0].role"},
        {CHAT, "'messages':[{'role':'reads text only','content':'x'}]", "invalid_value", "messages[0].role"},
        {TEXT, "'logit_bias':{'numerical_error':1}", "invalid_value", "logit_bias"},
        {TEXT, "'logit_bias':{'grammar_dead_end':1}", "invalid_value", "logit_bias"},
        {RESPONSES, "'logit_bias':{'numerical_error':1}", "invalid_value", "logit_bias"},
        {RESPONSES, "'reasoning':{'effort':'engine_unavailable'}", "invalid_value", "reasoning.effort"},
        {MESSAGES, "'logit_bias':{'numerical_error':1}", "invalid_value", "logit_bias: "},
        {MESSAGES, "'output_config':{'effort':'engine_unavailable'}", "invalid_value", "output_config.effort: "},
        {COUNT, "'output_config':{'effort':'grammar_limit'}", "invalid_value", "output_config.effort: "},
        {"/tokenize", "'messages':[{'role':'numerical_error','content':'x'}]", "invalid_value", "messages[0].role"},
    };
    WALK(demo, lines);
    struct json_object *answer = json_ask(demo.port, "/v1/responses",
                                          "{\"input\":\"x\",\"previous_response_id\":\"numerical_error\"}", NULL, 404);
    assert_string_equal(json_text_at(answer, "/error/code"), "not_found");
    assert_string_equal(json_text_at(answer, "/error/param"), "previous_response_id");
    json_object_put(answer);
}

static void limits_of_tokens(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {CHAT, "'max_tokens':1", NULL, "/usage/completion_tokens 1"},
        {CHAT, "'max_tokens':0", "invalid_value", "max_tokens"},
        {CHAT, "'max_tokens':-1", "invalid_value", "max_tokens"},
        {CHAT, "'max_tokens':1.5", "invalid_type", "max_tokens"},
        {CHAT, "'max_tokens':'2'", "invalid_type", "max_tokens"},
        {CHAT, "'max_completion_tokens':1", NULL, "/usage/completion_tokens 1"},
        {CHAT, "'max_completion_tokens':0", "invalid_value", "max_completion_tokens"},
        {CHAT, "'max_completion_tokens':1,'max_tokens':'x'", "invalid_type", "max_tokens"},
        {TEXT, "'max_tokens':0", NULL, "/usage/completion_tokens 0"},
        {TEXT, "'max_tokens':-1", "invalid_value", "max_tokens"},
        {MESSAGES, "'max_tokens':null", "missing_field", "max_tokens: missing"},
        {MESSAGES, "'max_tokens':0", "invalid_value", "max_tokens: must be at least 1"},
        {MESSAGES, "'max_tokens':1", NULL, "/stop_reason max_tokens"},
        {RESPONSES, "'max_output_tokens':1", NULL, "/incomplete_details/reason max_output_tokens"},
        {RESPONSES, "'max_output_tokens':0", "invalid_value", "max_output_tokens"},
        {RESPONSES, "'max_output_tokens':1,'input':''", NULL, "/object response"},
        {RESPONSES, "'max_output_tokens':null", NULL, "/status completed"},
    };
    WALK(demo, lines);
}

/* --- chat --- */

static void fields_of_chat(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {CHAT, "'messages':null", "missing_field", "messages"},
        {CHAT, "'messages':{}", "invalid_type", "messages"},
        {CHAT, "'messages':[]", "invalid_value", "messages"},
        {CHAT, "'messages':[5]", "invalid_type", "messages[0]"},
        {CHAT, "'messages':[{'content':'x'}]", "invalid_value", NULL},
        /* line feeds that a constraint asks for */
        {CHAT, "'max_tokens':9,'guided_choice':['\\n\\nx']", NULL, "/choices/0/message/content \n\nx"},
        {CHAT, "'max_tokens':99,'guided_regex':'\\nx','enable_thinking':true", NULL, "/choices/0/message/content \nx"},
        {CHAT,
         "'messages':[{'role':'user','content':'x'},{'role':'assistant','tool_calls':[{'type':'custom','custom':{"
         "'name':'f','input':'y'}},{'type':'custom','custom':5}]}]",
         "invalid_type", "messages[1].tool_calls[1].custom"},
        {CHAT, "'messages':[{'role':'owner','content':'x'}]", "invalid_value", NULL},
        {CHAT, "'messages':[{'role':'function','content':'x'}]", "unsupported_parameter", "messages[0]"},
        {CHAT, "'messages':[{'role':'developer','content':'x'},{'role':'user','content':'y','name':'n'}]", NULL, NULL},
        {CHAT, USER("null"), NULL, NULL},
        {CHAT, USER("5"), "invalid_value", NULL},
        {CHAT, USER("[{'type':'text','text':'a'},{'type':'input_text','text':'b'},{'type':'output_text','text':'c'}]"),
         NULL, NULL},
        {CHAT, USER("[{'type':'text','text':5}]"), "invalid_value", NULL},
        {CHAT, USER("[{'type':'dance'}]"), "unsupported_content", NULL},
        {CHAT, USER("[{'type':'image_url','image_url':{'url':'http://127.0.0.1/'}}]"), "unsupported_content", NULL},
        {CHAT, USER("[{'type':'input_audio','input_audio':{'data':''}}]"), "unsupported_content", NULL},
        {CHAT, USER("[{'type':'file','file':{}}]"), "unsupported_content", NULL},
        {CHAT, USER("[{'type':'video_url','video_url':{}}]"), "unsupported_content", NULL},
        {CHAT,
         "'messages':[{'role':'user','content':'x'},{'role':'assistant','content':[{'type':'refusal','refusal':'no'}]},"
         "{'role':'user','content':'y'}]",
         NULL, NULL},
        {CHAT,
         "'messages':[{'role':'user','content':'x'},{'role':'assistant','content':null,'tool_calls':[{'id':'1',"
         "'type':'function','function':{'name':'f','arguments':''}}]},{'role':'tool','content':'y'}]",
         NULL, NULL},
        {CHAT,
         "'messages':[{'role':'user','content':'x'},{'role':'assistant','tool_calls':[{'id':'1','type':'function',"
         "'function':{'name':'f','arguments':{'a':1}}}]},{'role':'tool','tool_call_id':'1','content':'y'}]",
         NULL, NULL},
        {CHAT,
         "'messages':[{'role':'user','content':'x'},{'role':'assistant','tool_calls':[{'id':'1','type':'custom',"
         "'custom':{'name':'f','input':'z'}}]},{'role':'tool','tool_call_id':'1','content':'y'}]",
         NULL, NULL},
        {CHAT,
         "'messages':[{'role':'user','content':'x'},{'role':'assistant','tool_calls':[{'id':'1','type':'function',"
         "'function':{'name':'f','arguments':'{'}}]},{'role':'tool','content':'y'}]",
         "invalid_value", NULL},
        {CHAT,
         "'messages':[{'role':'user','content':'x'},{'role':'assistant','content':'a','reasoning':'r'},"
         "{'role':'user','content':'y'}]",
         NULL, NULL},
        {CHAT, "'functions':[]", "unsupported_parameter", "functions"},
        {CHAT, "'functions':null", NULL, NULL},
        {CHAT, "'function_call':'none'", "unsupported_parameter", "function_call"},
        {CHAT, "'function_call':null", NULL, NULL},
        {CHAT, "'web_search_options':{}", "unsupported_parameter", "web_search_options"},
        {CHAT, "'audio':{'voice':'a'}", "unsupported_parameter", "audio"},
        {CHAT, "'modalities':['text']", NULL, NULL},
        {CHAT, "'modalities':['text','audio']", "unsupported_parameter", "modalities"},
        {CHAT, "'modalities':'text'", "invalid_type", "modalities"},
        {CHAT, "'logprobs':true,'top_logprobs':20", NULL, NULL},
        {CHAT, "'logprobs':true,'top_logprobs':21", "invalid_value", "top_logprobs"},
        {CHAT, "'logprobs':true,'top_logprobs':-1", "invalid_value", "top_logprobs"},
        {CHAT, "'logprobs':true,'top_logprobs':'1'", "invalid_type", "top_logprobs"},
        {CHAT, "'logprobs':1", "invalid_type", "logprobs"},
        {CHAT, "'top_logprobs':0", "invalid_value", "top_logprobs"},
        {CHAT, "'top_logprobs':null,'logprobs':null", NULL, "/choices/0/logprobs null"},
        {CHAT, "'stream_options':{'include_usage':true}", "invalid_value", "stream_options"},
        {CHAT, "'stream_options':null", NULL, NULL},
        {CHAT, "'stream_options':true", "invalid_type", "stream_options"},
        {CHAT, "'stream':true,'stream_options':{'include_usage':1}", "invalid_type", "stream_options.include_usage"},
        {CHAT, "'response_format':{'type':'text'}", NULL, NULL},
        {CHAT, "'response_format':null", NULL, NULL},
        {CHAT, "'response_format':'json_object'", "invalid_type", "response_format"},
        {CHAT, "'response_format':{}", "unsupported_parameter", "response_format"},
        {CHAT, "'response_format':{'type':'structural_tag'}", "unsupported_parameter", "response_format"},
        {CHAT, "'response_format':{'type':'json_object'}", NULL, NULL},
        {CHAT, "'max_tokens':8,'response_format':" SCHEMA, NULL, "/choices/0/message/content null"},
        {CHAT, "'response_format':{'type':'json_schema'}", "missing_field", "response_format"},
        {CHAT, "'response_format':{'type':'json_schema','json_schema':{'schema':5}}", "invalid_schema",
         "response_format"},
        {CHAT, "'response_format':{'type':'json_schema','json_schema':{'schema':{},'strict':'yes'}}", "invalid_type",
         "response_format"},
        {CHAT, "'response_format':{'type':'json_schema','json_schema':{'schema':{'type':'string'},'strict':true}}",
         "invalid_schema", "response_format"},
        {CHAT, "'response_format':{'type':'json_object'},'grammar':'root ::= [a]'", "conflicting_constraints",
         "grammar"},
        {CHAT, "'store':true,'verbosity':'low'", NULL, NULL},
    };
    WALK(demo, lines);
}

static void thinking_in_every_form(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {CHAT, ASK "'enable_thinking':true", NULL, "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'enable_thinking':false", NULL, "/usage/completion_tokens_details/reasoning_tokens 0"},
        {CHAT, ASK "'enable_thinking':1", "invalid_type", "enable_thinking"},
        {CHAT, ASK "'thinking':{'type':'enabled'}", NULL, "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'thinking':{'type':'adaptive'}", NULL, "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'thinking':{'type':'disabled'},'reasoning_effort':'high'", NULL,
         "/usage/completion_tokens_details/reasoning_tokens 0"},
        {CHAT, ASK "'thinking':{'type':'deep'}", "invalid_value", "thinking.type"},
        {CHAT, ASK "'thinking':'on'", "invalid_type", "thinking"},
        {CHAT, ASK "'enable_thinking':false,'chat_template_kwargs':{'enable_thinking':true}", NULL,
         "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'chat_template_kwargs':{'thinking':true,'whatever':1}", NULL,
         "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'chat_template_kwargs':5", "invalid_type", "chat_template_kwargs"},
        {CHAT, ASK "'chat_template_kwargs':null", NULL, NULL},
        {CHAT, ASK "'clear_thinking':'no'", "invalid_type", "clear_thinking"},
        {CHAT, ASK "'reasoning_effort':'none'", NULL, "/usage/completion_tokens_details/reasoning_tokens 0"},
        {CHAT, ASK "'reasoning_effort':'minimal'", NULL, "/usage/completion_tokens_details/reasoning_tokens 0"},
        {CHAT, ASK "'reasoning_effort':'low'", NULL, "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'reasoning_effort':'medium'", NULL, "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'reasoning_effort':'xhigh'", NULL, "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'reasoning_effort':'max'", NULL, "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'reasoning_effort':'much'", "invalid_value", "reasoning_effort"},
        {CHAT, ASK "'reasoning_effort':3", "invalid_type", "reasoning_effort"},
        {CHAT, ASK "'reasoning':{'effort':'high'}", NULL, "/usage/completion_tokens_details/reasoning_tokens 2"},
        {CHAT, ASK "'reasoning':{'effort':null}", NULL, "/usage/completion_tokens_details/reasoning_tokens 0"},
        {CHAT, ASK "'reasoning':'high'", "invalid_type", "reasoning"},
        {MESSAGES, ASK "'thinking':{'type':'enabled','budget_tokens':1024}", NULL, "/content/0/type thinking"},
        {MESSAGES, ASK "'thinking':{'type':'adaptive'}", NULL, "/content/0/type thinking"},
        {MESSAGES, ASK "'thinking':{'type':'disabled'}", NULL, "/content/0/type text"},
        {MESSAGES, ASK "'thinking':{'type':'enabled','display':'omitted'}", NULL, "/content/0/thinking "},
        {MESSAGES, ASK "'thinking':{}", "invalid_value", "thinking.type: must be"},
        {MESSAGES, ASK "'output_config':{'effort':'high'}", NULL, "/content/0/type thinking"},
        {MESSAGES, ASK "'output_config':{'effort':'very'}", "invalid_value", "output_config.effort: 'very'"},
        {MESSAGES, ASK "'output_config':{'effort':1}", "invalid_type", "output_config.effort: must be"},
        {MESSAGES, "'output_config':{'format':5}", "invalid_type", "output_config.format: must be"},
        {RESPONSES, "'input':'What is 17 plus 25?','reasoning':{'effort':'low'}", NULL, "/output/0/type reasoning"},
        {RESPONSES, "'input':'What is 17 plus 25?','reasoning':{'effort':'low','summary':'auto'}", NULL,
         "/output/0/summary/0/type summary_text"},
        {RESPONSES, "'input':'What is 17 plus 25?','reasoning':{'effort':null}", NULL, "/output/0/type message"},
        {RESPONSES, "'input':'What is 17 plus 25?','reasoning':{'effort':'lots'}", "invalid_value", NULL},
        {RESPONSES, "'input':'What is 17 plus 25?','reasoning':5", "invalid_type", "reasoning"},
        {"/apply-template", USER("'hi'") ",'reasoning_effort':'none'", NULL,
         "/prompt [gMASK]<sop><|user|>hi<|assistant|><think></think>"},
        {"/apply-template", USER("'hi'") ",'reasoning_effort':'low'", NULL,
         "/prompt [gMASK]<sop><|system|>Reasoning Effort: High<|user|>hi<|assistant|><think>"},
        {"/apply-template", USER("'hi'") ",'reasoning_effort':'high'", NULL,
         "/prompt [gMASK]<sop><|system|>Reasoning Effort: High<|user|>hi<|assistant|><think>"},
        {"/apply-template", USER("'hi'") ",'reasoning_effort':'xhigh'", NULL,
         "/prompt [gMASK]<sop><|system|>Reasoning Effort: Max<|user|>hi<|assistant|><think>"},
        {"/apply-template", USER("'hi'") ",'reasoning_effort':'max'", NULL,
         "/prompt [gMASK]<sop><|system|>Reasoning Effort: Max<|user|>hi<|assistant|><think>"},
        {"/apply-template", USER("'hi'") ",'reasoning_effort':'minimal'", NULL,
         "/prompt [gMASK]<sop><|user|>hi<|assistant|><think></think>"},
        {"/apply-template", USER("'hi'") ",'enable_thinking':true", NULL,
         "/prompt [gMASK]<sop><|system|>Reasoning Effort: Max<|user|>hi<|assistant|><think>"},
    };
    WALK(demo, lines);
}

static void tools_in_every_form(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {CHAT, "'tools':null,'tool_choice':null", NULL, NULL},
        {CHAT, "'tools':[],'tool_choice':'auto'", NULL, NULL},
        {CHAT, "'tools':[" F("ns.a:b-c_d") "]", NULL, NULL},
        {CHAT, "'tools':{}", "invalid_type", "tools"},
        {CHAT, "'tools':[5]", "invalid_type", "tools[0]"},
        {CHAT, "'tools':[" F("a b") "]", "invalid_value", "tools[0]"},
        {CHAT, "'tools':[" F("") "]", "invalid_value", "tools[0]"},
        {CHAT, "'tools':[" F("a") "," F("a") "]", "invalid_value", "tools"},
        {CHAT, "'tools':[{'type':'function','function':{'name':'f','parameters':[]}}]", "invalid_type", "tools[0]"},
        {CHAT, "'tools':[{'type':'function','function':{'name':'f','strict':'yes'}}]", "invalid_type", "tools[0]"},
        {CHAT, "'tools':[{'type':'custom','custom':{'name':'f'}}]", NULL, NULL},
        {CHAT, "'tools':[{'type':'unknown','name':'f','parameters':{'type':'object'}}]", NULL, NULL},
        {CHAT, "'tools':[{'type':'web_search'}]", NULL, NULL},
        {CHAT, "'tools':[{'type':'web_search'}],'tool_choice':{'type':'web_search'}", "unsupported_parameter",
         "tool_choice"},
        {CHAT, "'tools':[{'type':'web_search'}],'tool_choice':'required'", "invalid_value", "tool_choice"},
        {CHAT, "'tool_choice':'none'", NULL, NULL},
        {CHAT, "'tool_choice':'required'", "invalid_value", "tool_choice"},
        {CHAT, "'tools':[" F("a") "],'tool_choice':'none'", NULL, NULL},
        {CHAT, "'tools':[" F("a") "],'tool_choice':'perhaps'", "invalid_value", "tool_choice"},
        {CHAT, "'tools':[" F("a") "],'tool_choice':5", "invalid_type", "tool_choice"},
        {CHAT, "'tools':[" F("a") "],'tool_choice':{'type':'function','function':{'name':'b'}}", "invalid_value",
         "tool_choice"},
        {CHAT,
         "'tools':[" F("a") "," F("b") "],'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':'auto',"
                                       "'tools':[" F("a") "]}}",
         NULL, NULL},
        {CHAT,
         "'tools':[" F("a") "],'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':'some','tools':[" F(
             "a") "]}}",
         "invalid_value", "tool_choice"},
        {CHAT,
         "'tools':[" F("a") "],'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':'auto','tools':[" F(
             "z") "]}}",
         "invalid_value", "tool_choice"},
        {CHAT,
         "'tools':[" F("a") "],'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':'required',"
                            "'tools':[]}}",
         "invalid_value", "tool_choice"},
        {CHAT, "'tools':[" F("a") "],'tool_choice':{'type':'allowed_tools'}", "missing_field", "tool_choice"},
        {CHAT, "'tools':[" F("a") "],'tool_choice':{'type':'allowed_tools','allowed_tools':{'tools':5}}",
         "invalid_type", "tool_choice.allowed_tools.tools"},
        {RESPONSES, "'tools':[" R("a") "],'tool_choice':{'type':'allowed_tools','mode':5,'tools':[]}", "invalid_type",
         "tool_choice.mode"},
        {CHAT, "'parallel_tool_calls':false", NULL, NULL},
        {CHAT, "'parallel_tool_calls':'no'", "invalid_type", "parallel_tool_calls"},
        {MESSAGES, "'tools':[" M("a") "]", NULL, NULL},
        {MESSAGES, "'tools':[{'name':'a','input_schema':{'type':'object'},'strict':1}]", "invalid_type", "tools[0]"},
        {MESSAGES, "'tools':[{'type':'custom','name':'a','input_schema':{'type':'object'},'defer_loading':true}]", NULL,
         NULL},
        {MESSAGES, "'tools':[{'type':'bash_20250124','name':'bash'}]", NULL, NULL},
        {MESSAGES, "'tools':[" M("a") "],'tool_choice':{'type':'auto','disable_parallel_tool_use':true}", NULL, NULL},
        {MESSAGES, "'tools':[" M("a") "],'tool_choice':{'type':'auto','disable_parallel_tool_use':'x'}", "invalid_type",
         "tool_choice.disable_parallel_tool_use"},
        {MESSAGES, "'tools':[" M("a") "],'tool_choice':{'type':'none'}", NULL, NULL},
        {MESSAGES, "'tools':[" M("a") "],'tool_choice':{'type':'tool','name':'b'}", "invalid_value", "tool_choice:"},
        {MESSAGES, "'tools':[" M("a") "],'tool_choice':{'type':'maybe'}", "unsupported_parameter", "tool_choice:"},
        {MESSAGES, "'tool_choice':{'type':'any'}", "invalid_value", "tool_choice:"},
        {RESPONSES, "'tools':[" R("a") "]", NULL, NULL},
        {RESPONSES, "'tools':[{'type':'local_shell'}]", "unsupported_parameter", "tools[0]"},
        {RESPONSES,
         "'tools':[{'type':'custom','name':'c','format':{'type':'grammar','syntax':'lark','definition':'x'}"
         "}],'tool_choice':{'type':'custom','name':'d'}",
         "invalid_value", "tool_choice"},
        {RESPONSES, "'tools':[{'type':'custom','name':'c','strict':true}]", "unsupported_parameter", "tools[0]"},
        {RESPONSES, "'tools':[{'type':'namespace','name':'ns','tools':[" R("a") "]}]", NULL, NULL},
        {RESPONSES, "'tools':[{'type':'namespace','name':'n s','tools':[]}]", "invalid_value", "tools[0]"},
        {RESPONSES, "'tools':[{'type':'namespace','name':'ns','tools':{}}]", "invalid_type", "tools[0].tools"},
        {RESPONSES, "'tools':[{'type':'mcp','server_label':'x'},{'type':'tool_search'}]", NULL, NULL},
    };
    WALK(demo, lines);
}

/* --- completions --- */

static void fields_of_completions(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {TEXT, "'prompt':null", "missing_field", "prompt"},
        {TEXT, "'prompt':5", "invalid_type", "prompt"},
        {TEXT, "'prompt':{}", "invalid_type", "prompt"},
        {TEXT, "'prompt':[]", "invalid_value", "prompt"},
        {TEXT, "'prompt':[[]]", "invalid_value", "prompt"},
        {TEXT, "'prompt':[1,2,3]", NULL, "/usage/prompt_tokens 3"},
        {TEXT, "'prompt':[1,'x']", "invalid_value", "prompt"},
        {TEXT, "'prompt':[-1]", "invalid_value", "prompt"},
        {TEXT, "'prompt':[999999]", "invalid_value", "prompt"},
        {TEXT, "'prompt':['a','b']", NULL, "/choices/1/index 1"},
        {TEXT, "'prompt':[[1,2],[3]]", NULL, "/usage/prompt_tokens 3"},
        {TEXT, "'prompt':['a','b'],'stream':true", "unsupported_parameter", "stream"},
        {TEXT, "'suffix':'x'", "unsupported_parameter", "suffix"},
        {TEXT, "'suffix':''", NULL, NULL},
        {TEXT, "'suffix':null", NULL, NULL},
        {TEXT, "'echo':true,'max_tokens':0", NULL, "/choices/0/text The weir"},
        {TEXT, "'echo':1", "invalid_type", "echo"},
        {TEXT, "'logprobs':0", NULL, NULL},
        {TEXT, "'logprobs':20", NULL, NULL},
        {TEXT, "'logprobs':21", "invalid_value", "logprobs"},
        {TEXT, "'logprobs':true", "invalid_type", "logprobs"},
        {TEXT, "'logprobs':null", NULL, "/choices/0/logprobs null"},
        {TEXT, "'logprobs':1,'echo':true,'max_tokens':0", NULL, "/choices/0/logprobs/token_logprobs/0 null"},
        {TEXT, "'prompt':[65],'logprobs':1,'echo':true,'max_tokens':0", NULL, "/choices/0/logprobs/text_offset/0 0"},
        {TEXT, "'prompt':[65],'logprobs':1,'echo':true,'max_tokens':3", NULL, "/choices/0/logprobs/text_offset/0 0"},
        {TEXT, "'prompt':[[65],[66]],'logprobs':1,'echo':true,'max_tokens':3", NULL,
         "/choices/1/logprobs/token_logprobs/0 null"},
        {TEXT, "'logprobs':1,'echo':true,'stream':true", "unsupported_parameter", "logprobs"},
        {TEXT, "'stream_options':{}", "invalid_value", "stream_options"},
        {TEXT, "'max_tokens':8,'response_format':{'type':'json_schema','schema':{'type':'null'}}", NULL,
         "/choices/0/text null"},
    };
    WALK(demo, lines);
    char json[JSON_BYTES], list[JSON_BYTES] = "";
    for (int n = 128; n <= 129; n++) {
        size_t used = 0;
        for (int i = 0; i < n; i++) used += (size_t)snprintf(list + used, sizeof list - used, "%s'a'", i ? "," : "");
        snprintf(json, sizeof json, "'max_tokens':0,'prompt':[%s]", list);
        const struct line line = {TEXT, json, n > 128 ? "invalid_value" : NULL, n > 128 ? "prompt" : NULL};
        walk(&demo, &line, 1);
    }
}

/* --- messages --- */

static void fields_of_messages(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {MESSAGES, "'messages':null", "missing_field", "messages: missing"},
        {MESSAGES, "'messages':'x'", "invalid_type", "messages: must be"},
        {MESSAGES, "'messages':[]", "invalid_value", "messages: there must"},
        {MESSAGES, "'messages':['x']", "invalid_type", "messages[0]: must be"},
        {MESSAGES, "'messages':[{'role':'tool','content':'x'}]", "invalid_value", "messages[0]: the role 'tool'"},
        {MESSAGES, "'messages':[{'role':'user','content':5}]", "invalid_type", "messages[0]: content"},
        {MESSAGES, "'messages':[{'role':'user','content':'a'},{'role':'user','content':'b'}]", NULL, NULL},
        {MESSAGES, "'messages':[{'role':'user','content':'a'},{'role':'system','content':'b'}]", NULL, NULL},
        {MESSAGES, "'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'So'}]", NULL, NULL},
        /* what goes on with a line may begin with its end */
        {MESSAGES,
         "'max_tokens':1,'temperature':0,'logit_bias':{'198':100},'messages':[{'role':'user','content':'a'},{'role':"
         "'assistant','content':'So'}]",
         NULL, "/content/0/text \n"},
        {MESSAGES,
         "'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'So'}],'thinking':{'type':'enabled'}",
         "unsupported_parameter", "messages: the last one"},
        {MESSAGES, USER("[{'type':'text','text':'a','cache_control':{'type':'ephemeral'},'citations':[]}]"), NULL,
         NULL},
        {MESSAGES, USER("[{'type':'image','source':{'type':'url','url':'http://127.0.0.1/'}}]"), "unsupported_content",
         "messages[0].content[0]: this model reads text only"},
        {MESSAGES, USER("[{'type':'document','source':{}}]"), "unsupported_content", "messages[0].content[0]:"},
        {MESSAGES, USER("[{'type':'dance'}]"), "invalid_value", "messages[0].content[0]:"},
        {MESSAGES, USER("[{'type':'text','text':5}]"), "invalid_type", "messages[0].content[0]:"},
        {MESSAGES, USER("[{'type':'search_result','title':'t','source':'s','content':[{'type':'text','text':'x'}]}]"),
         NULL, NULL},
        {MESSAGES,
         "'messages':[{'role':'user','content':'a'},{'role':'assistant','content':[{'type':'thinking','thinking':'t',"
         "'signature':'s'},{'type':'redacted_thinking','data':'d'},{'type':'text','text':'b'},{'type':'tool_use',"
         "'id':'1','name':'f','input':{'x':1}}]},{'role':'user','content':[{'type':'tool_result','tool_use_id':'1',"
         "'is_error':true,'content':[{'type':'text','text':'bad'}]}]}]",
         NULL, NULL},
        {MESSAGES,
         "'messages':[{'role':'user','content':'a'},{'role':'assistant','content':[{'type':'tool_use','id':'1',"
         "'name':'f','input':{}}]},{'role':'user','content':[{'type':'tool_result','tool_use_id':'1'}]}]",
         NULL, NULL},
        {MESSAGES,
         "'messages':[{'role':'user','content':'a'},{'role':'assistant','content':[{'type':'tool_use','id':'1',"
         "'name':'f','input':'x'}]}]",
         "invalid_type", "messages[1].content[0]: input"},
        /* what the template finds is blamed on the block that it was made of, whatever stands before it */
        {MESSAGES,
         "'system':'be brief','messages':[{'role':'user','content':'a'},{'role':'assistant','content':[{'type':"
         "'tool_use','id':'1','name':'f'},{'type':'tool_use','id':'2','name':'f'}]},{'role':'user','content':[{'type':"
         "'tool_result','tool_use_id':'1','content':'x'},{'type':'tool_result','tool_use_id':'2','content':[{'type':"
         "'tool_reference','tool_name':'g'}]}]}]",
         "invalid_value", "messages[2].content[1].content[0]: refers to the tool 'g'"},
        {MESSAGES,
         "'messages':[{'role':'user','content':'a'},{'role':'assistant','content':[{'type':'text','text':'b'},{'type':"
         "'tool_use','id':'1','input':{}}]},{'role':'user','content':[{'type':'tool_result','tool_use_id':'1'}]}]",
         "missing_field", "messages[1].content[1]: a call needs a name"},
        {MESSAGES, USER("[{'type':'text','text':'a'},{'type':'search_result','content':5}]"), "invalid_type",
         "messages[0].content[1].content: must be an array"},
        {MESSAGES, "'system':'be brief'", NULL, NULL},
        {MESSAGES, "'system':[{'type':'text','text':'a'},{'type':'text','text':'x-anthropic-billing: 1'}]", NULL, NULL},
        {MESSAGES, "'system':null", NULL, NULL},
        {MESSAGES, "'system':5", "invalid_type", "system: must be"},
        {MESSAGES, "'system':[{'type':'image'}]", "unsupported_content", "system[0]:"},
        {MESSAGES, "'max_tokens':8,'output_config':{'format':" FLAT_SCHEMA "}", NULL, "/content/0/text null"},
        {MESSAGES, "'max_tokens':8,'output_format':" FLAT_SCHEMA, NULL, "/content/0/text null"},
        {MESSAGES, "'output_format':" FLAT_SCHEMA ",'output_config':{'format':" FLAT_SCHEMA "}",
         "conflicting_constraints", "output_format: the answer is already"},
        {MESSAGES, "'output_config':{'format':{'type':'xml'}}", "unsupported_parameter", "output_config.format: "},
        {MESSAGES, "'output_config':5", "invalid_type", "output_config: must be"},
        {MESSAGES, "'stop_sequences':['x']", NULL, NULL},
        {MESSAGES, "'stop_sequences':5", "invalid_type", "stop_sequences"},
        {MESSAGES, "'mcp_servers':[]", NULL, NULL},
        {MESSAGES, "'mcp_servers':[{'url':'x'}]", "unsupported_parameter", "mcp_servers: "},
        {MESSAGES, "'context_management':{},'container':'c','inference_geo':'eu','betas':['x']", NULL, NULL},
        {COUNT, "'max_tokens':null", NULL, NULL},
        {COUNT, "'system':'be brief'", NULL, NULL},
        {COUNT, "'messages':[]", "invalid_value", "messages: there must"},
    };
    WALK(demo, lines);
}

/* --- responses --- */

static void fields_of_responses(void **state)
{
    (void)state;
#define INPUT(items) "'input':[{'role':'user','content':'x'}," items "]"
    static const struct line lines[] = {
        {RESPONSES, "'input':null", "missing_field", "input"},
        {RESPONSES, "'input':5", "invalid_type", "input"},
        {RESPONSES, "'input':[5]", "invalid_type", "input[0]"},
        {RESPONSES, "'input':[{'type':'message','role':'user','content':[{'type':'input_text','text':'a'}]}]", NULL,
         NULL},
        {RESPONSES, "'input':[{'role':'user','content':[{'type':'input_image','image_url':'x'}]}]",
         "unsupported_content", "input[0].content[0]"},
        {RESPONSES, "'input':[{'role':'user','content':[{'type':'input_file'}]}]", "unsupported_content",
         "input[0].content[0]"},
        /* what was made of an item is blamed on the item, however many messages and calls stand before it */
        {RESPONSES, "'instructions':'be brief','input':[{'role':'user','content':5}]", "invalid_value",
         "input[0].content"},
        {RESPONSES, "'input':[{'role':'user'}]", "missing_field", "input[0]"},
        {RESPONSES, INPUT("{'role':'assistant','content':null}"), "missing_field", "input[1]"},
        {RESPONSES, INPUT("{'type':'reasoning','summary':5}"), "invalid_type", "input[1].summary"},
        {RESPONSES,
         INPUT("{'type':'compaction'},{'type':'reasoning','summary':[{'text':'r'}]},"
               "{'role':'assistant','content':{}}"),
         "invalid_value", "input[3].content"},
        {RESPONSES,
         INPUT("{'role':'assistant','content':'a'},{'type':'function_call','call_id':'1','name':'f'},"
               "{'type':'function_call','call_id':'2','name':'f','arguments':'['}"),
         "invalid_value", "input[3].arguments"},
        {RESPONSES,
         INPUT("{'type':'function_call','call_id':'1','name':'f'},{'type':'function_call','call_id':'2','name':'f'},"
               "{'type':'function_call_output','call_id':'1','output':'y'},"
               "{'type':'function_call_output','call_id':'2','output':[{'type':'input_image'}]}"),
         "unsupported_content", "input[4].output[0]"},
        {RESPONSES, "'input':[{'role':'robot','content':'x'}]", "invalid_value", "input[0]"},
        {RESPONSES,
         INPUT("{'type':'reasoning','summary':[],'content':[{'type':'reasoning_text','text':'r'}]},"
               "{'type':'message','role':'assistant','content':[{'type':'output_text','text':'a'}]},"
               "{'role':'user','content':'y'}"),
         NULL, NULL},
        {RESPONSES,
         INPUT("{'type':'function_call','call_id':'1','name':'f','arguments':'{}'},"
               "{'type':'function_call_output','call_id':'1','output':'y'}"),
         NULL, NULL},
        {RESPONSES,
         INPUT("{'type':'function_call','call_id':'1','name':'f','arguments':'{}'},"
               "{'type':'function_call_output','call_id':'1','output':[{'type':'input_text','text':'y'}]}"),
         NULL, NULL},
        {RESPONSES, INPUT("{'type':'function_call_output','call_id':'2','output':'y'}"), "invalid_value", "input[1]"},
        {RESPONSES, INPUT("{'type':'function_call','call_id':'1'}"), "missing_field", "input[1]"},
        {RESPONSES,
         INPUT("{'type':'custom_tool_call','call_id':'1','name':'f','input':'z'},"
               "{'type':'custom_tool_call_output','call_id':'1','output':'y'}"),
         NULL, NULL},
        {RESPONSES, INPUT("{'type':'custom_tool_call','call_id':'1','name':'f'}"), "missing_field", "input[1]"},
        {RESPONSES,
         INPUT("{'type':'local_shell_call','call_id':'1','action':{'command':['ls']}},"
               "{'type':'local_shell_call_output','call_id':'1','output':'y'}"),
         NULL, NULL},
        {RESPONSES, INPUT("{'type':'compaction'},{'type':'web_search_call'}"), NULL, NULL},
        {RESPONSES, INPUT("{'type':'hologram'}"), "invalid_value", "input[1]"},
        {RESPONSES, INPUT("{'type':'item_reference','id':'msg_nobody'}"), "invalid_value", "input[1]"},
        {RESPONSES, INPUT("{'type':'item_reference'}"), "missing_field", "input[1]"},
        {RESPONSES, "'instructions':'be brief'", NULL, "/instructions be brief"},
        {RESPONSES, "'instructions':null", NULL, "/instructions null"},
        {RESPONSES, "'instructions':5", "invalid_type", "instructions"},
        {RESPONSES, "'max_output_tokens':8,'text':{'format':" FLAT_SCHEMA ",'verbosity':'low'}", NULL,
         "/output/0/content/0/text null"},
        {RESPONSES, "'text':{'format':{'type':'text'}}", NULL, "/text/format/type text"},
        {RESPONSES, "'text':{'format':{'type':'json_schema'}}", "missing_field", "text.format"},
        {RESPONSES, "'text':'json'", "invalid_type", "text"},
        {RESPONSES, "'text':{'format':'json'}", "invalid_type", "text.format"},
        {RESPONSES, "'reasoning':{'effort':'much'}", "invalid_value", "reasoning.effort"},
        {RESPONSES, "'include':['reasoning.encrypted_content','something.else']", NULL, NULL},
        {RESPONSES, "'include':['message.output_text.logprobs'],'top_logprobs':2", NULL, NULL},
        {RESPONSES, "'include':'x'", "invalid_type", "include"},
        {RESPONSES, "'include':[5]", "invalid_type", "include"},
        {RESPONSES, "'top_logprobs':21", "invalid_value", "top_logprobs"},
        {RESPONSES, "'store':false", NULL, "/store false"},
        {RESPONSES, "'store':null", NULL, "/store true"},
        {RESPONSES, "'store':'no'", "invalid_type", "store"},
        {RESPONSES, "'previous_response_id':null", NULL, "/previous_response_id null"},
        {RESPONSES, "'previous_response_id':5", "invalid_type", "previous_response_id"},
        {RESPONSES, "'conversation':'c'", "unsupported_parameter", "conversation"},
        {RESPONSES, "'background':true", "unsupported_parameter", "background"},
        {RESPONSES, "'background':false", NULL, "/background false"},
        {RESPONSES, "'prompt':{'id':'p'}", "unsupported_parameter", "prompt"},
        {RESPONSES, "'truncation':'disabled'", NULL, "/truncation disabled"},
        {RESPONSES, "'truncation':'auto'", "unsupported_parameter", "truncation"},
        {RESPONSES, "'truncation':5", "invalid_type", "truncation"},
        {RESPONSES, "'max_tool_calls':3", NULL, "/max_tool_calls 3"},
        {RESPONSES, "'metadata':{'a':'b'}", NULL, "/metadata/a b"},
        {RESPONSES, "'stream_options':{'include_obfuscation':false}", NULL, NULL},
        {RESPONSES, "'parallel_tool_calls':false", NULL, "/parallel_tool_calls false"},
    };
    WALK(demo, lines);
    struct json_object *answer =
        json_ask(demo.port, RESPONSES, "{\"previous_response_id\":\"resp_x\",\"input\":\"x\"}", NULL, 404);
    assert_string_equal(json_text_at(answer, "/error/code"), "not_found");
    json_object_put(answer);

    /* Items are counted as the client sent them, without those of the response before. */
    char json[JSON_BYTES];
    answer = json_ask(demo.port, RESPONSES, "{\"input\":\"x\",\"max_output_tokens\":1}", NULL, 200);
    snprintf(json, sizeof json, "{\"previous_response_id\":\"%s\",\"input\":[{\"role\":\"user\",\"content\":5}]}",
             json_text_at(answer, "/id"));
    json_object_put(answer);
    answer = json_ask(demo.port, RESPONSES, json, NULL, 400);
    assert_string_equal(json_text_at(answer, "/error/param"), "input[0].content");
    json_object_put(answer);
}

/* --- small routes --- */

/* Tokens of a prompt with a turn that thought and called; `item` is what stands for the thought. */
static int64_t tokens_with(const char *item)
{
    char json[JSON_BYTES], members[JSON_BYTES];
    snprintf(members, sizeof members,
             "'max_output_tokens':1,'input':[{'role':'user','content':'x'}%s,"
             "{'type':'function_call','call_id':'1','name':'f'},"
             "{'type':'function_call_output','call_id':'1','output':'y'}]",
             item);
    quote(json, RESPONSES, members);
    struct json_object *answer = json_ask(demo.port, RESPONSES, json, NULL, 200);
    int64_t n = json_int_at(answer, "/usage/input_tokens");
    json_object_put(answer);
    return n;
}

/* A thought comes back under its content, or under the summary that was asked for, with or without an empty content. */
static void thoughts_come_back_in_every_form(void **state)
{
    (void)state;
#define SUMMARY ",{'type':'reasoning','summary':[{'type':'summary_text','text':'think hard about it'}]"
    int64_t none = tokens_with(""), all = tokens_with(SUMMARY "}");
    assert_true(all > none);
    assert_int_equal(tokens_with(SUMMARY ",'content':null}"), all);
    assert_int_equal(tokens_with(SUMMARY ",'content':[]}"), all);
    assert_int_equal(tokens_with(",{'type':'reasoning','content':[{'type':'reasoning_text','text':'think hard about "
                                 "it'}],'summary':[]}"),
                     all);
    assert_int_equal(tokens_with(SUMMARY ",'content':[{'type':'reasoning_text','text':'think hard about it'}]}"), all);
    assert_int_equal(tokens_with(",{'type':'reasoning','summary':[],'content':[]}"), none);
}

static void fields_of_small_routes(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {"/tokenize", "'content':'hi'", NULL, "/max_model_len 4096"},
        {"/tokenize", "'prompt':'hi','content':null", NULL, NULL},
        {"/tokenize", "'content':5", "invalid_type", "content"},
        {"/tokenize", "'prompt':5", "invalid_type", "prompt"},
        {"/tokenize", "", "missing_field", "content"},
        {"/tokenize", "'content':'','add_special_tokens':false", NULL, "/count 0"},
        {"/tokenize", "'content':'','add_special_tokens':true", NULL, "/count 2"},
        {"/tokenize", "'content':'','add_special_tokens':1", "invalid_type", "add_special_tokens"},
        {"/tokenize", "'content':'x','add_special_tokens':false,'with_pieces':true", NULL, "/tokens/0/piece x"},
        {"/tokenize", "'content':'x','with_pieces':'yes'", "invalid_type", "with_pieces"},
        {"/tokenize", "'messages':[{'role':'user','content':'x'}],'tools':[" F("a") "]", NULL, NULL},
        {"/tokenize", "'messages':[]", "invalid_value", "messages"},
        {"/detokenize", "'tokens':[]", NULL, "/content "},
        {"/detokenize", "'tokens':null", "missing_field", "tokens"},
        {"/detokenize", "'tokens':5", "invalid_type", "tokens"},
        {"/detokenize", "'tokens':['1']", "invalid_value", "tokens"},
        {"/detokenize", "'tokens':[-1]", "invalid_value", "tokens"},
        {"/detokenize", "'tokens':[4294967296]", "invalid_value", "tokens"},
        {"/apply-template", "'messages':[{'role':'user','content':'x'}]", NULL, NULL},
        {"/apply-template", "", "missing_field", "messages"},
    };
    WALK(demo, lines);
}

/* With --strict-fields what has no effect is refused; what is known and only concerns others is not. */
static void strict_fields_are_strict(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {CHAT, "'nobody_knows_this':1", "invalid_value", "nobody_knows_this"},
        {TEXT, "'nobody_knows_this':null", "invalid_value", "nobody_knows_this"},
        {MESSAGES, "'nobody_knows_this':1", "invalid_value", "nobody_knows_this: "},
        {RESPONSES, "'nobody_knows_this':1", "invalid_value", "nobody_knows_this"},
        {CHAT, "'user':'u','store':true,'metadata':{}", NULL, NULL},
        {CHAT, "'tools':[{'type':'web_search'}]", "unsupported_parameter", "tools[0]"},
        {MESSAGES, "'tools':[{'type':'bash_20250124','name':'bash'}]", "unsupported_parameter", "tools[0]: "},
    };
    WALK(strict, lines);
    struct json_object *answer = json_ask(strict.port, CHAT, "{\"model\":\"other\",\"messages\":[]}", NULL, 404);
    assert_string_equal(json_text_at(answer, "/error/code"), "model_not_found");
    json_object_put(answer);
    json_object_put(json_ask(strict.port, "/v1/models/demo", NULL, NULL, 200));
    json_object_put(json_ask(strict.port, "/v1/models/other", NULL, NULL, 404));
}

/* --- routes --- */

static int status_of(const char *method, const char *path, const char *extra, const char *body, char allow[64])
{
    struct client_answer answer;
    char head[1024];
    int fd = client_connect(demo.port);
    snprintf(head, sizeof head,
             "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %zu\r\nConnection: close\r\n\r\n", method, path,
             extra, strlen(body));
    client_send_text(fd, head);
    client_send_text(fd, body);
    client_read(fd, &answer);
    const char *allowed = client_answer_header(&answer, "Allow");
    snprintf(allow, 64, "%s", allowed ? allowed : "");
    assert_non_null(client_answer_header(&answer, "x-request-id"));
    int status = answer.status;
    client_answer_free(&answer);
    close(fd);
    return status;
}

static void routes_are_what_the_table_says(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *extra, *body;
        int status;
        const char *allow;
    } cases[] = {
        {"GET", "/v1/models?beta=true", "", "", 200, ""},
        {"GET", "/models/", "", "", 200, ""},
        {"GET", "/v1/models/whatever", "", "", 200, ""},
        {"GET", "/v1/v1/models", "", "", 404, ""},
        {"GET", "/v1/nothing", "", "", 404, ""},
        {"GET", CHAT, "", "", 405, "POST, OPTIONS"},
        {"DELETE", CHAT, "", "", 405, "POST, OPTIONS"},
        {"POST", "/health", "", "{}", 405, "GET, HEAD, OPTIONS"},
        {"GET", "/v1/responses/resp_x", "", "", 404, ""},
        {"DELETE", "/v1/responses/resp_x", "", "", 404, ""},
        {"GET", "/v1/responses/resp_x/input_items", "", "", 404, ""},
        {"POST", "/v1/responses/resp_x/cancel", "Content-Type: application/json\r\n", "{}", 400, ""},
        {"POST", "/v1/embeddings", "Content-Type: application/json\r\n", "{}", 400, ""},
        {"POST", "/v1/audio/transcriptions", "Content-Type: multipart/form-data; boundary=x\r\n", "--x--\r\n", 400, ""},
        {"POST", "/v1/files", "Content-Type: multipart/form-data; boundary=x\r\n", "--x--\r\n", 400, ""},
        {"DELETE", "/v1/files/file-1", "", "", 400, ""},
        {"POST", "/v1/images/generations", "", "{}", 400, ""},
        {"POST", "/v1/moderations", "", "{}", 400, ""},
        {"GET", "/v1/fine_tuning/jobs", "", "", 400, ""},
        {"GET", "/v1/batches", "", "", 400, ""},
        {"POST", "/v1/adapters", "", "{}", 400, ""},
        {"POST", CHAT, "Content-Type: text/plain\r\n", "{}", 415, ""},
        {"POST", CHAT, "Content-Encoding: gzip\r\n", "{}", 415, ""},
        {"POST", "/admin/load", "", "{}", 404, ""},
    };
    char allow[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = status_of(cases[i].method, cases[i].path, cases[i].extra, cases[i].body, allow);
        if (status != cases[i].status) fail_msg("%s %s: %d", cases[i].method, cases[i].path, status);
        assert_string_equal(allow, cases[i].allow);
    }
}

/* A line counts with its query. */
static void a_query_has_a_limit(void **state)
{
    (void)state;
    enum { LINE = 16 << 10 };
    char allow[64];
    for (int i = 0; i < 2; i++) {
        char *head = malloc(LINE + 1024);
        int n = snprintf(head, LINE, "GET /health?");
        int fill = LINE - (int)strlen("/health?") + i;
        memset(head + n, 'x', (size_t)fill);
        snprintf(head + n + fill, 512, " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        struct client_answer answer;
        int fd = client_connect(demo.port);
        client_send_text(fd, head);
        client_read(fd, &answer);
        assert_int_equal(answer.status, i ? 431 : 200);
        client_answer_free(&answer);
        close(fd);
        free(head);
    }
    assert_int_equal(status_of("GET", "/health", "", "", allow), 200);
}

/* Who asks whether to send a body is told to, or gets the refusal instead. */
static void a_body_is_asked_for(void **state)
{
    (void)state;
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":1}";
    char head[512];
    struct client_answer answer;
    for (int i = 0; i < 2; i++) {
        int fd = client_connect(demo.port);
        snprintf(head, sizeof head,
                 "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                 "Expect: 100-continue\r\nConnection: close\r\n\r\n",
                 CHAT, i ? "text/plain" : "application/json", strlen(body));
        client_send_text(fd, head);
        if (i == 0) {
            assert_true(client_read_until(fd, "HTTP/1.1 100 Continue\r\n\r\n", 30000));
            client_send_text(fd, body);
        }
        client_read(fd, &answer);
        assert_int_equal(answer.status, i ? 415 : 200);
        client_answer_free(&answer);
        close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_are_good_by_themselves),
        cmocka_unit_test(common_fields),
        cmocka_unit_test(words_of_clients_choose_no_status),
        cmocka_unit_test(limits_of_tokens),
        cmocka_unit_test(fields_of_chat),
        cmocka_unit_test(thinking_in_every_form),
        cmocka_unit_test(tools_in_every_form),
        cmocka_unit_test(fields_of_completions),
        cmocka_unit_test(fields_of_messages),
        cmocka_unit_test(fields_of_responses),
        cmocka_unit_test(thoughts_come_back_in_every_form),
        cmocka_unit_test(fields_of_small_routes),
        cmocka_unit_test(strict_fields_are_strict),
        cmocka_unit_test(routes_are_what_the_table_says),
        cmocka_unit_test(a_query_has_a_limit),
        cmocka_unit_test(a_body_is_asked_for),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
