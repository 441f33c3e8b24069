package storagetest

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var traceRules = []rule{
	{"erased_nowhere_where_only_a_name_is_left", func(f *fixture) {
		bob, dave := f.user("bob"), f.user("dave")
		c := f.group("c", bob, f.user("hides"))
		_, err := f.store.Ban(f.ctx, c, f.user("banned"), at(2))
		f.ok(err)
		f.block(dave, f.user("blocked"))
		f.block(f.user("blocks"), dave)
		f.hide(f.user("hides"), c, tidemark.ReceiptsOff)
		f.hide(f.user("hides-all"), "", tidemark.ReceiptsOff)
		for _, users := range [][]tidemark.UserID{f.users("named", "also-named"), {bob}} {
			d := f.draft(c, bob, "to those")
			d.Mentions = tidemark.NewMentions(false, users)
			f.append(d)
		}
		all := f.draft(c, bob, "to all")
		all.Mentions.All = true
		f.append(all)
		_, err = f.store.PutBlock(f.ctx, f.user("was-blocking"), f.user("was-blocked"), at(2))
		f.ok(err)
		_, err = f.store.RemoveBlock(f.ctx, f.user("was-blocking"), f.user("was-blocked"))
		f.ok(err)
		for _, limit := range []int{500, 50} {
			found := map[tidemark.UserID]bool{}
			for after, more := "", true; more; {
				var users []tidemark.UserID
				users, after, more, err = f.store.UsersNamed(f.ctx, after, limit)
				f.ok(err)
				for _, user := range users {
					found[user] = true
				}
			}
			for user, want := range map[string]bool{
				"banned": true, "blocked": true, "blocks": true, "dave": true, "hides": true,
				"hides-all": true, "named": true, "also-named": true, "bob": true,
				"was-blocked": false, "was-blocking": false, "nobody": false,
			} {
				f.equal(user, found[f.user(user)], want)
			}
			f.equal("all", found["*"], false)
		}
		for _, after := range []string{"?", "9|a|b", "0|a"} {
			_, _, _, err := f.store.UsersNamed(f.ctx, after, 1)
			if code := tidemark.CodeOf(err); code != "" && code != tidemark.Invalid {
				f.Errorf("from %q: %v", after, err)
			}
		}
		_, _, _, err = f.store.UsersNamed(f.ctx, "", storage.MaxErased+1)
		f.code(err, tidemark.Invalid)
	}},
}
