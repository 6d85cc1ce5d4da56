// Package custody keeps the Secrets that a K3s cluster can't lose: who owns them, how they are found and moved, and
// when one may be made. It decides on metadata alone and never changes the data of a Secret that exists.
package custody
