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
	// reviewLimit limits one token's reviews, and the wait for another token's.
	reviewLimit = 10 * time.Second
	// maxReviews is the number of tokens that are reviewed at the same time.
	maxReviews = 8
	// allowedFor is how long an allowed token is cached. A revoked token works that long.
	allowedFor = time.Minute
	// refusedFor is shorter, so that a newly granted role takes effect soon.
	refusedFor = 10 * time.Second
	// maxAllowed and maxRefused limit the caches. They are separate, so that invalid tokens can't evict those of
	// scrapers.
	maxAllowed, maxRefused = 256, 1024
	// unansweredEvery is the pause between log lines about an API server that does not answer.
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

// verdict admits a request, or refuses it with a status and a text.
type verdict struct {
	admitted bool
	status   int
	text     string
}

func refuse(status int, text string) verdict { return verdict{status: status, text: text} }

func (g *Guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := g.judge(r)
		if v.admitted {
			admit(r.Context())
			w.Header().Del("Connection") // set for all others, see Metrics
			next.ServeHTTP(w, r)
			return
		}
		if v.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, v.text, v.status)
	})
}

// judge answers from the caches, or by reviews that concurrent requests with the same token share.
func (g *Guard) judge(r *http.Request) verdict {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return refuse(http.StatusUnauthorized, "metrics need a bearer token: send that of a ServiceAccount of this cluster")
	}
	sum := sha256.Sum256([]byte(token))
	if v, ok := g.cached(sum); ok {
		return v
	}
	// The first client can disconnect, but the others need the answer.
	ctx := context.WithoutCancel(r.Context())
	shared, err, _ := g.reviewing.Do(string(sum[:]), func() (any, error) {
		if v, ok := g.cached(sum); ok { // cached meanwhile
			return v, nil
		}
		return g.review(ctx, token, sum)
	})
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "the API server can't be asked which users may read metrics; the plugin's log says why")
	}
	return shared.(verdict)
}

func (g *Guard) cached(sum [sha256.Size]byte) (verdict, bool) {
	for _, c := range []*cache.LRUExpireCache{g.allowed, g.refused} {
		if v, ok := c.Get(sum); ok {
			return v.(verdict), true
		}
	}
	return verdict{}, false
}

// review asks the API server and caches its answer. An error is not cached.
func (g *Guard) review(ctx context.Context, token string, sum [sha256.Size]byte) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewLimit)
	defer cancel()
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return verdict{}, ctx.Err()
	}
	v, err := g.ask(ctx, token)
	switch {
	case err != nil:
		g.unanswered.Do(func() {
			g.log.WarnContext(ctx, "scrape refused, since its token can't be reviewed", slog.String("err", withoutToken(err, token)))
		})
	case v.admitted:
		g.allowed.Add(sum, v, allowedFor)
	default:
		g.refused.Add(sum, v, refusedFor)
	}
	return v, err
}

// withoutToken removes the token from an error for the log, because a server that answers instead of the API server can
// quote it.
func withoutToken(err error, token string) string {
	return strings.ReplaceAll(err.Error(), token, "<token>")
}

// ask reviews the token, then its user's access.
func (g *Guard) ask(ctx context.Context, token string) (verdict, error) {
	review, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return verdict{}, fmt.Errorf("create a TokenReview: %w", err)
	}
	if !review.Status.Authenticated {
		return refuse(http.StatusUnauthorized, "the API server does not accept this bearer token"), nil
	}
	return g.askRight(ctx, &review.Status.User)
}

func (g *Guard) askRight(ctx context.Context, user *authenticationv1.UserInfo) (verdict, error) {
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
		return verdict{}, fmt.Errorf("create a SubjectAccessReview: %w", err)
	}
	if !access.Status.Allowed || access.Status.Denied {
		return refuse(http.StatusForbidden, fmt.Sprintf("user %q may not get %s: grant it the verb get on this non-resource URL", user.Username, MetricsPath)), nil
	}
	return verdict{admitted: true}, nil
}
