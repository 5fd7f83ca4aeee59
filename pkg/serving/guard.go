package serving

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

const (
	// reviewLimit is for one token's reviews, and for the wait until there may be another.
	reviewLimit = 10 * time.Second
	// maxReviews is how many tokens are reviewed at once.
	maxReviews = 8
	// allowedFor is how long an allowed token is cached. A revoked token still works that long.
	allowedFor = time.Minute
	// refusedFor is shorter, so that a newly granted role takes effect soon.
	refusedFor = 10 * time.Second
	// maxAllowed and maxRefused bound the caches. There are two of them, so that made-up
	// tokens can't evict those of scrapers.
	maxAllowed, maxRefused = 256, 1024
	// unansweredEvery is how often the log says that the API server does not answer.
	unansweredEvery = time.Minute
)

// Guard admits a request if the API server accepts its bearer token (TokenReview) and the
// token's user may get the non-resource URL [MetricsPath] (SubjectAccessReview). It answers
// other requests with 401 or 403, and with 503 if the API server can't be asked. It keeps
// hashes of tokens only. It is safe for concurrent use.
type Guard struct {
	client           kubernetes.Interface
	log              *slog.Logger
	allowed, refused *cache.LRUExpireCache
	reviewing        singleflight.Group
	slots            chan struct{}
	unanswered       rate.Sometimes
}

// NewGuard returns a guard that sends its reviews through client. Use a separate client with
// its own rate limit: anybody who can connect causes requests.
func NewGuard(client kubernetes.Interface, log *slog.Logger) *Guard {
	return &Guard{
		client: client, log: log,
		allowed: cache.NewLRUExpireCache(maxAllowed), refused: cache.NewLRUExpireCache(maxRefused),
		slots: make(chan struct{}, maxReviews), unanswered: rate.Sometimes{Interval: unansweredEvery},
	}
}

// refusal is the status and the text of a request that is not let in; the zero value lets it in.
type refusal struct {
	status int
	text   string
}

func (g *Guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refused := g.judge(r)
		if refused == (refusal{}) {
			next.ServeHTTP(w, r)
			return
		}
		if refused.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, refused.text, refused.status)
	})
}

// judge answers from memory, or by reviews that all who ask with the same token share.
func (g *Guard) judge(r *http.Request) refusal {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return refusal{http.StatusUnauthorized, "metrics need a bearer token: send that of a ServiceAccount of this cluster"}
	}
	sum := sha256.Sum256([]byte(token))
	if known, ok := g.remembered(sum); ok {
		return known
	}
	// The first of them may hang up; the others still want the answer.
	ctx := context.WithoutCancel(r.Context())
	shared, err, _ := g.reviewing.Do(string(sum[:]), func() (any, error) {
		if known, ok := g.remembered(sum); ok { // by those who asked just before
			return known, nil
		}
		return g.review(ctx, token, sum)
	})
	if err != nil {
		return refusal{http.StatusServiceUnavailable, "the API server can't be asked who may read metrics; the plugin's log says why"}
	}
	return shared.(refusal)
}

func (g *Guard) remembered(sum [sha256.Size]byte) (refusal, bool) {
	if _, ok := g.allowed.Get(sum); ok {
		return refusal{}, true
	}
	if known, ok := g.refused.Get(sum); ok {
		return known.(refusal), true
	}
	return refusal{}, false
}

// review asks the API server and remembers what it says, but not that it says nothing.
func (g *Guard) review(ctx context.Context, token string, sum [sha256.Size]byte) (refusal, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewLimit)
	defer cancel()
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return refusal{}, ctx.Err()
	}
	refused, err := g.ask(ctx, token)
	switch {
	case err != nil:
		g.unanswered.Do(func() {
			g.log.WarnContext(ctx, "scrape refused, since its token can't be reviewed", slog.String("err", withoutToken(err, token)))
		})
	case refused == (refusal{}):
		g.allowed.Add(sum, nil, allowedFor)
	default:
		g.refused.Add(sum, refused, refusedFor)
	}
	return refused, err
}

// withoutToken is the text of an error, for a log: what refuses a review may quote it.
func withoutToken(err error, token string) string {
	return strings.ReplaceAll(err.Error(), token, "<token>")
}

// ask has the token's user named, and its right looked up.
func (g *Guard) ask(ctx context.Context, token string) (refusal, error) {
	review, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return refusal{}, fmt.Errorf("create a TokenReview: %w", err)
	}
	if !review.Status.Authenticated {
		return refusal{http.StatusUnauthorized, "the API server does not accept this bearer token"}, nil
	}
	return g.askRight(ctx, &review.Status.User)
}

func (g *Guard) askRight(ctx context.Context, user *authenticationv1.UserInfo) (refusal, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	access, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: MetricsPath, Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return refusal{}, fmt.Errorf("create a SubjectAccessReview: %w", err)
	}
	if !access.Status.Allowed || access.Status.Denied {
		return refusal{http.StatusForbidden, fmt.Sprintf("user %q may not get %s: grant it the verb get on this non-resource URL", user.Username, MetricsPath)}, nil
	}
	return refusal{}, nil
}
