/*
 * policies.h -- the cache policies: a line each. The value of `memory.policy`, its words and the
 * array fb_policies (cache/policy.h) are made from it. A new policy is a file cache/policy_NAME.c
 * that defines fb_policy_NAME, and a line here.
 */
#ifndef FB_CONFIG_POLICIES_H
#define FB_CONFIG_POLICIES_H

/* X(FB_POLICY_ name, fb_policy_ name, word) */
#define FB_POLICY_MAP(X) \
    X(FILL, fill, "fill") \
    X(NEXT_USE, next_use, "next-use") \
    X(LRU, lru, "lru")

#define FB_POLICY_WORD(upper, lower, word) W(FB_POLICY_##upper, word)

#define FB_POLICY_ONE(upper, lower, word) +1
enum { FB_POLICY_COUNT = 1 FB_POLICY_MAP(FB_POLICY_ONE) }; /* and auto */
#undef FB_POLICY_ONE
#endif
